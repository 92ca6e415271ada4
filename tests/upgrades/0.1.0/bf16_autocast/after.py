"""Digits with a small transformer: one row of pixels is one token. Trains under bfloat16 autocast."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchlift.runtime import Accelerator


class RowTransformer(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.position = nn.Parameter(torch.zeros(8, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(width, 10)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(rows) + self.position
        return self.head(self.encoder(tokens).mean(dim=1))


def build_loaders(batch_size: int) -> tuple[DataLoader, DataLoader]:
    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    train_ids, test_ids = train_test_split(range(len(labels)), test_size=333, random_state=0)
    train_set = TensorDataset(images[train_ids], labels[train_ids])
    test_set = TensorDataset(images[test_ids], labels[test_ids])
    return (
        DataLoader(train_set, batch_size=batch_size, shuffle=True),
        DataLoader(test_set, batch_size=batch_size),
    )


def train_epoch(
    model: nn.Module,
    loader: DataLoader,
    optimizer: torch.optim.Optimizer,
    accelerator: Accelerator,
) -> float:
    model.train()
    running = 0.0
    for images, labels in loader:
        with accelerator.autocast():
            logits = model(images)
            loss = F.cross_entropy(logits, labels)

        optimizer.zero_grad(set_to_none=True)
        accelerator.backward(loss)
        optimizer.step()
        running += accelerator.reduce(loss.detach(), reduction="mean").item()
    return running / len(loader)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, accelerator: Accelerator) -> tuple[float, float]:
    model.eval()
    total_loss, correct, seen = 0.0, 0, 0
    for images, labels in loader:
        with accelerator.autocast():
            logits = model(images)
            logits, labels = accelerator.gather_for_metrics((logits, labels))
            loss = F.cross_entropy(logits, labels)
        total_loss += loss.item() * labels.size(0)
        correct += (logits.argmax(dim=-1) == labels).sum().item()
        seen += labels.size(0)
    return total_loss / seen, correct / seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="row_transformer.pt")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    accelerator = Accelerator(mixed_precision="bf16")

    train_loader, test_loader = build_loaders(args.batch_size)
    model = RowTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, train_loader, test_loader
    )

    for epoch in range(args.epochs):
        train_loss = train_epoch(model, train_loader, optimizer, accelerator)
        test_loss, accuracy = evaluate(model, test_loader, accelerator)
        accelerator.print(f"epoch {epoch}: train loss {train_loss:.4f}, test loss {test_loss:.4f}, accuracy {accuracy:.4f}")

    accelerator.save(accelerator.get_state_dict(model), args.out)
    accelerator.print(f"saved to {args.out}")


if __name__ == "__main__":
    main()
