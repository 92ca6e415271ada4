"""Digits on all devices of a machine: python train.py starts a process for each."""
import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import digits
from models import Net
from utils import accuracy, reduce_mean
from torchlift.runtime import Accelerator


def train(model, loader, optimizer, accelerator):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
    loss = reduce_mean(loss.detach(), accelerator)
    if accelerator.is_main_process:
        print(f"loss {loss.item():.4f}")


def main_worker(args):
    accelerator = Accelerator()
    torch.manual_seed(args.seed + accelerator.process_index)
    train_set, test_set = digits()
    sampler = DistributedSampler(train_set, num_replicas=accelerator.num_processes, rank=accelerator.process_index, seed=args.seed)
    train_loader = DataLoader(train_set, batch_size=args.batch_size // accelerator.num_processes, sampler=sampler)
    test_loader = DataLoader(
        test_set, batch_size=args.batch_size, sampler=DistributedSampler(test_set, shuffle=False, num_replicas=accelerator.num_processes, rank=accelerator.process_index)
    )
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, train_loader, test_loader
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train(model, train_loader, optimizer, accelerator)
        share = accuracy(model, test_loader, accelerator)
        if accelerator.is_main_process:
            print(f"epoch {epoch} accuracy {share:.4f}")
    if accelerator.is_main_process:
        torch.save(model.state_dict(), "net.pt")
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    main_worker(args)
