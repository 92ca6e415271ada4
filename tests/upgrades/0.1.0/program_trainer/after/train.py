import argparse

import torch
import torch.nn.functional as F

from data import loaders
from models import Net
from torchlift.runtime import Accelerator


class Trainer:
    def __init__(self, args):
        self.args = args
        self.accelerator = Accelerator(cpu=args.no_cuda)
        self.device = self.accelerator.device
        self.model = Net()
        self.train_loader, self.test_loader = loaders(args.batch_size)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        self.model, self.optimizer, self.train_loader, self.test_loader = self.accelerator.prepare(
            self.model, self.optimizer, self.train_loader, self.test_loader
        )
        self.best = 0.0

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for x, y in self.train_loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            self.accelerator.backward(loss)
            self.optimizer.step()
            total += self.accelerator.reduce(loss.detach(), reduction="mean").item()
        return total / len(self.train_loader)

    @torch.no_grad()
    def evaluate(self):
        model = self.model
        model.eval()
        correct = count = 0
        for x, y in self.test_loader:
            out = model(x)
            out, y = self.accelerator.gather_for_metrics((out, y))
            correct += (out.argmax(1) == y).sum().item()
            count += len(y)
        return correct / count

    def save(self, path):
        self.accelerator.save({"model": self.accelerator.get_state_dict(self.model), "best": self.best}, path)

    def run(self):
        for epoch in range(self.args.epochs):
            loss = self.train_epoch()
            accuracy = self.evaluate()
            self.accelerator.print(f"epoch {epoch} loss {loss:.4f} accuracy {accuracy:.4f}")
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
