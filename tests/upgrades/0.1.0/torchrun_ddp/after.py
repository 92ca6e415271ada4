"""Digits on all devices of a machine: torchrun --nproc_per_node=2 before.py"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torchlift.runtime import Accelerator


def evaluate(model, loader, accelerator):
    model.eval()
    counts = torch.zeros(2, device=accelerator.device)
    with torch.no_grad():
        for x, y in loader:
            counts[0] += (model(x).argmax(1) == y).sum()
            counts[1] += len(y)
    counts = accelerator.reduce(counts, reduction="sum")
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    accelerator = Accelerator()
    torch.manual_seed(args.seed)

    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    train_set, test_set = TensorDataset(x[:1500], y[:1500]), TensorDataset(x[1500:], y[1500:])

    sampler = DistributedSampler(
        train_set, shuffle=True, seed=args.seed, num_replicas=accelerator.num_processes, rank=accelerator.process_index
    )
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=args.batch_size, sampler=DistributedSampler(
        test_set, shuffle=False, num_replicas=accelerator.num_processes, rank=accelerator.process_index
    ))

    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = net
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, train_loader, test_loader
    )

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), target)
            accelerator.backward(loss)
            optimizer.step()
        accuracy = evaluate(model, test_loader, accelerator)
        if accelerator.is_main_process:
            print(f"epoch {epoch} loss {loss.item():.4f} accuracy {accuracy:.4f}")

    if accelerator.is_main_process:
        torch.save(model.state_dict(), "ddp_digits.pt")
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
