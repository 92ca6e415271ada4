#!/usr/bin/env python3
# Digits with a convolutional net and (optionally) half precision.
import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchlift.runtime import Accelerator


def get_args():
  p = argparse.ArgumentParser()
  p.add_argument("--epochs", type=int, default=3)
  p.add_argument("--bs", type=int, default=64)
  p.add_argument("--lr", type=float, default=0.05)
  p.add_argument("--clip", type=float, default=1.0)
  p.add_argument("--fp16", action="store_true", help="train in half precision, with loss scaling")
  p.add_argument("--cpu", action="store_true", help="stay on the CPU")
  p.add_argument("--seed", type=int, default=42)
  return p.parse_args()


def make_model():
  return nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(4, 32), nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 16, 10),
  )


def train(args, model, loader, criterion, optimizer, accelerator, epoch):
  model.train()
  for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()

    with accelerator.autocast():
      out = model(x)
      loss = criterion(out, y)

    accelerator.backward(loss)
    # gradients must be back in their own units before they are clipped
    accelerator.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()

    if i % 10 == 0:
      accelerator.print(f"epoch {epoch} batch {i:3d} loss {loss.item():.5f}")


def test(args, model, loader, accelerator):
  model.eval()
  hits, count = 0, 0
  with torch.no_grad():
    for x, y in loader:
      with accelerator.autocast():
        out = model(x)
        out, y = accelerator.gather_for_metrics((out, y))
      hits += (out.argmax(1) == y).sum().item()
      count += len(y)
  return hits / count


def main():
  args = get_args()
  torch.manual_seed(args.seed)
  accelerator = Accelerator(cpu=args.cpu, mixed_precision="fp16" if args.fp16 else "no")

  d = load_digits()
  data = TensorDataset(torch.tensor(d.images, dtype=torch.float32)[:, None] / 16, torch.tensor(d.target))
  train_data, test_data = random_split(data, [1450, 347])
  train_loader = DataLoader(train_data, args.bs, shuffle=True)
  test_loader = DataLoader(test_data, args.bs)

  model = make_model()
  criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
  optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
  scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
  model, optimizer, train_loader, test_loader = accelerator.prepare(
    model, optimizer, train_loader, test_loader
  )

  start = time.time()
  for epoch in range(args.epochs):
    train(args, model, train_loader, criterion, optimizer, accelerator, epoch)
    acc = test(args, model, test_loader, accelerator)
    scheduler.step()
    accelerator.print(f"epoch {epoch} accuracy {acc:.4f}")
  elapsed = time.time() - start

  accelerator.save(accelerator.get_state_dict(model), "digits_fp16.pt")
  if elapsed > 600:
    accelerator.print("that took more than ten minutes, try --fp16")


if __name__ == "__main__":
  main()
