"""Digits on all devices of a machine: python train.py starts a process for each."""
import argparse

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import digits
from models import Net
from utils import accuracy, cleanup, reduce_mean, setup


def train(model, loader, optimizer, rank, world_size, device):
    model.train()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    loss = reduce_mean(loss.detach(), world_size)
    if rank == 0:
        print(f"loss {loss.item():.4f}")


def main_worker(rank, world_size, args):
    setup(rank, world_size)
    device = torch.device(f"cuda:{rank}" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed + rank)
    train_set, test_set = digits()
    sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank, seed=args.seed)
    train_loader = DataLoader(train_set, batch_size=args.batch_size // world_size, sampler=sampler)
    test_loader = DataLoader(
        test_set, batch_size=args.batch_size, sampler=DistributedSampler(test_set, shuffle=False)
    )
    model = Net().to(device)
    model = DDP(model, device_ids=[rank] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train(model, train_loader, optimizer, rank, world_size, device)
        share = accuracy(model, test_loader, device)
        if rank == 0:
            print(f"epoch {epoch} accuracy {share:.4f}")
    if rank == 0:
        torch.save(model.module.state_dict(), "net.pt")
    dist.barrier()
    cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    world_size = max(2, torch.cuda.device_count())
    mp.spawn(main_worker, args=(world_size, args), nprocs=world_size, join=True)
