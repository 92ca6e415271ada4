"""How far to the right is a digit written? Regression on the centre of the ink."""
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits
from torchlift.runtime import Accelerator


# ---------------------------------------------------------------- data

def build_data():
    images = torch.tensor(load_digits().images, dtype=torch.float32)
    columns = torch.arange(8, dtype=torch.float32)
    centre = (images.sum(dim=1) * columns).sum(dim=1) / images.sum(dim=(1, 2))
    centre = (centre - centre.mean()) / centre.std()
    x = images.flatten(1) / 16
    return TensorDataset(x[:1450], centre[:1450]), TensorDataset(x[1450:], centre[1450:])


# --------------------------------------------------------------- model

class Regressor(nn.Module):

    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


# ---------------------------------------------------------- evaluation

def rmse(model, loader, accelerator):
    model.eval()
    squared, absolute, count = 0.0, 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            # one number for each image
            pred = model(x)
            pred, y = accelerator.gather_for_metrics((pred, y))
            squared += F.mse_loss(pred, y, reduction="sum").item()
            absolute += (pred - y).abs().sum().item()
            count += y.numel()  # not len(loader) * batch size: the last batch is short
    return math.sqrt(squared / count), absolute / count


# ------------------------------------------------------------ training

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--max-lr", type=float, default=0.01)
    ap.add_argument("--clip", type=float, default=5.0)
    ap.add_argument("--seed", type=int, default=123)
    ap.add_argument("--out", default="regressor.pt")
    args = ap.parse_args()

    torch.manual_seed(args.seed)

    # first choice: a GPU
    accelerator = Accelerator()  # else the CPU

    train_set, test_set = build_data()
    train_loader = DataLoader(train_set, batch_size=args.batch, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=args.batch)
    accelerator.print(f"{len(train_set)} images to learn from, {len(test_set)} to be tested on")

    model = Regressor()
    # 4,353 weights
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.max_lr)

    # the schedule counts batches, not epochs
    total_steps = args.epochs * len(train_loader)
    scheduler = OneCycleLR(optimizer, max_lr=args.max_lr, total_steps=total_steps)
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )

    for epoch in range(args.epochs):
        model.train()
        for step, (x, y) in enumerate(train_loader):
            # targets are standardised, see build_data
            # shape: (batch, 64)
            # shape: (batch,)

            # forward
            loss = F.mse_loss(model(x), y)

            # backward
            optimizer.zero_grad()
            accelerator.backward(loss)  # fills .grad
            accelerator.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            scheduler.step()  # once a batch

            if step % 8 == 0:
                # the rate that the next batch will have
                lr = scheduler.get_last_lr()[0]
                accelerator.print(f"epoch {epoch} step {step:>3} loss {loss.item():.5f} lr {lr:.6f}")

        # after every epoch
        root, mean = rmse(model, test_loader, accelerator)
        accelerator.print(f"epoch {epoch} rmse {root:.5f} mae {mean:.5f}")

    accelerator.save(accelerator.get_state_dict(model), args.out)  # plain tensors


if __name__ == "__main__":
    main()
