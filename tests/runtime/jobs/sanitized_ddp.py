"""A script that knows nothing of torchlift: DistributedDataParallel, and collectives of its own."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best, score = 0.0, torch.ones(()) + dist.get_rank()
for _ in range(3):
    model(torch.ones(1, 2) + dist.get_rank()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if score > best:  # a decision
    best = score.item()
dist.all_reduce(score)  # a collective
if score > 2:
    dist.barrier()
if dist.get_rank() == 0 and len(sys.argv) > 1:
    sys.stdout.flush()
    raise SystemExit(7)
dist.destroy_process_group()
