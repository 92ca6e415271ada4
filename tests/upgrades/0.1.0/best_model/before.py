"""Select a model on a validation set, stop when it no longer improves, test the best one."""
import argparse
import json
import os

import torch
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Subset, TensorDataset


class AverageMeter:
    """Keeps a weighted mean."""

    def __init__(self):
        self.sum = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count


class MLP(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Tanh(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.layers(x)


def make_loaders(batch_size):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16.0
    dataset = TensorDataset(images, torch.tensor(digits.target))
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0)).tolist()
    train_loader = DataLoader(Subset(dataset, order[:1210]), batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(Subset(dataset, order[1210:1499]), batch_size=batch_size)
    test_loader = DataLoader(Subset(dataset, order[1499:]), batch_size=batch_size)
    return train_loader, val_loader, test_loader


def train_one_epoch(model, loader, criterion, optimizer, device, epoch):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss = criterion(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"[{epoch:02d}:{step:03d}] loss={loss.item():.5f}")


@torch.no_grad()
def validate(model, loader, criterion, device):
    model.eval()
    losses, accuracies = AverageMeter(), AverageMeter()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        losses.update(criterion(logits, y).item(), y.size(0))
        accuracies.update((logits.argmax(dim=1) == y).float().mean().item(), y.size(0))
    return losses.avg, accuracies.avg


@torch.no_grad()
def predict(model, loader, device):
    model.eval()
    predictions, labels = [], []
    for x, y in loader:
        logits = model(x.to(device))
        predictions.extend(logits.argmax(dim=1).cpu().tolist())
        labels.extend(y.tolist())
    return predictions, labels


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--patience", type=int, default=4)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default="runs")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    best_path = os.path.join(args.out, "best.pt")
    device = torch.device(args.device)

    train_loader, val_loader, test_loader = make_loaders(args.batch_size)
    model = MLP(args.hidden).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)

    history = []
    best_acc = 0.0
    bad_epochs = 0
    for epoch in range(args.epochs):
        train_one_epoch(model, train_loader, criterion, optimizer, device, epoch)
        val_loss, val_acc = validate(model, val_loader, criterion, device)
        scheduler.step(val_loss)
        history.append({"epoch": epoch, "loss": val_loss, "acc": val_acc})
        print(f"[{epoch:02d}] val_loss={val_loss:.5f} val_acc={val_acc:.4f} lr={optimizer.param_groups[0]['lr']:g}")

        if val_acc > best_acc:
            best_acc = val_acc
            bad_epochs = 0
            torch.save(model.state_dict(), best_path)
        else:
            bad_epochs += 1
            if bad_epochs >= args.patience:
                print(f"no improvement for {bad_epochs} epochs, stopping")
                break

    # the weights of the best epoch, not of the last
    model.load_state_dict(torch.load(best_path))
    predictions, labels = predict(model, test_loader, device)
    score = f1_score(labels, predictions, average="macro")
    print(f"best val_acc={best_acc:.4f} test macro f1={score:.4f} on {len(labels)} digits")

    with open(os.path.join(args.out, "history.json"), "w") as handle:
        json.dump({"history": history, "test_f1": score}, handle, indent=2)


if __name__ == "__main__":
    main()
