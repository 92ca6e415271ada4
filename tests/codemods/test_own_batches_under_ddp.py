"""The rule `hand_written_ddp` on small scripts, each of whose processes makes its batches by itself."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

Migrated = Callable[[str], str]

TUTORIAL = """\
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def join(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)

def show(rank, world_size):
    print(f"one step on {rank}")
    join(rank, world_size)
    net = nn.Linear(10, 5).to(rank)
    model = DDP(net, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    scores = model(torch.randn(20, 10))
    nn.functional.mse_loss(scores, torch.randn(20, 5).to(rank)).backward()
    optimizer.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(show, args=(2,), nprocs=2, join=True)
"""
CPU = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(nn.Linear(10, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    loss = nn.functional.mse_loss(model(torch.randn(20, 10)), torch.randn(20, 5))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
INLINE = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from rows import data

dist.init_process_group("gloo")
model = DDP(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_one_step_outside_of_any_loop_is_migrated(migrated: Migrated) -> None:
    """It was refused: what each process trains on is its author's affair."""
    assert "accelerator.backward(nn.functional.mse_loss(" in migrated(TUTORIAL)


def test_a_worker_that_reads_its_number_before_a_function_joins_has_the_accelerator_before(migrated: Migrated) -> None:
    """Nothing gave it the number any more, as the check of the output found."""
    begins = """\
    def show():
        accelerator = Accelerator()
        print(f"one step on {accelerator.process_index}")
    """
    assert dedent(begins) in migrated(TUTORIAL)


def test_what_ddp_moved_to_its_device_is_moved(migrated: Migrated) -> None:
    """DDP with `device_ids` moves what the model is given; without, it does not."""
    assert "scores = model(torch.randn(20, 10).to(accelerator.device))" in migrated(TUTORIAL)
    assert "model(torch.randn(20, 10)), torch.randn(20, 5))" in migrated(CPU)


def test_a_script_that_knows_the_cpu_alone_stays_there(migrated: Migrated) -> None:
    """A finding said so, and the accelerator was made without."""
    assert "accelerator = Accelerator(cpu=True)" in migrated(CPU)


def test_a_loader_with_a_distributed_sampler_is_prepared_where_it_is_made(migrated: Migrated) -> None:
    """The sampler's rank was taken for a loop over a part of each process's own: a fault of the check."""
    assert "for x, y in accelerator.prepare(DataLoader(data, batch_size=8, sampler=Distr" in migrated(INLINE)
