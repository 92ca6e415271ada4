import argparse

import torch
import torch.nn.functional as F

from data import loaders
from models import Net


class Trainer:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
        self.model = Net().to(self.device)
        self.train_loader, self.test_loader = loaders(args.batch_size)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        self.best = 0.0

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for x, y in self.train_loader:
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def evaluate(self):
        model = self.model
        model.eval()
        correct = count = 0
        for x, y in self.test_loader:
            x, y = x.to(self.device), y.to(self.device)
            out = model(x)
            correct += (out.argmax(1) == y).sum().item()
            count += len(y)
        return correct / count

    def save(self, path):
        torch.save({"model": self.model.state_dict(), "best": self.best}, path)

    def run(self):
        for epoch in range(self.args.epochs):
            loss = self.train_epoch()
            accuracy = self.evaluate()
            print(f"epoch {epoch} loss {loss:.4f} accuracy {accuracy:.4f}")
            if accuracy > self.best:
                self.best = accuracy
                self.save("best.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    Trainer(args).run()


if __name__ == "__main__":
    main()
