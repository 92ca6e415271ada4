import os

import torch
import torch.distributed as dist


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ.setdefault("MASTER_PORT", "12355")
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=world_size)
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)


def cleanup():
    dist.destroy_process_group()


def reduce_mean(tensor, world_size):
    total = tensor.clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total / world_size


def accuracy(model, loader, device):
    model.eval()
    right, seen = torch.zeros(1, device=device), torch.zeros(1, device=device)
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            right += (model(x).argmax(1) == y).sum()
            seen += len(y)
    dist.all_reduce(right)
    dist.all_reduce(seen)
    return (right / seen).item()
