"""An evaluation of 10,000 rows whose predictions are gathered, in turn: by hand, by Accelerate, by Fabric."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .measure import Row, beside, fastest_tenth, missing, processes
from .training import MODULES, PEERS, contenders

TITLE = "An evaluation of 10,000 rows in batches of 50, predictions and labels gathered at each (all by gloo)"
ROWS, BATCH = 10_000, 50
ROUNDS = 30
PROCESSES = (2, 4)


def parts() -> tuple[Any, Any]:
    """A classifier of 300,000 parameters, and a loader of its batches."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).eval()
    data = TensorDataset(torch.randn(ROWS, 64), torch.randint(10, (ROWS,)))
    return model, DataLoader(data, batch_size=BATCH)


def by_hand(count: int) -> tuple[Any, Any, Callable[[Any, Any], tuple[Any, Any]]]:
    """With nothing but torch: a DistributedSampler, and a gather of each tensor."""
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler

    model, loader = parts()
    sampler: Any = DistributedSampler(loader.dataset, shuffle=False)

    def gathered(tensor: Any) -> Any:
        every = tensor.new_empty((count * len(tensor), *tensor.shape[1:]))
        dist.all_gather_into_tensor(every, tensor)
        return every

    loader = DataLoader(loader.dataset, batch_size=BATCH, sampler=sampler)
    return torch.nn.parallel.DistributedDataParallel(model), loader, lambda a, b: (gathered(a), gathered(b))


def through(who: str, count: int) -> tuple[Any, Any, Callable[[Any, Any], tuple[Any, Any]]]:
    """A model, a loader, and what gathers predictions and labels."""
    if who == "raw torch":
        return by_hand(count)
    if who == "fabric":
        from lightning_fabric import Fabric  # type: ignore[import-not-found,unused-ignore]

        fabric = Fabric(accelerator="cpu", devices=count, strategy="ddp")
        fabric.launch()
        model, loader = parts()

        def all_of(a: Any, b: Any) -> tuple[Any, Any]:
            every, labels = fabric.all_gather((a, b))
            return every.flatten(0, 1), labels.flatten()

        return fabric.setup(model), fabric.setup_dataloaders(loader), all_of
    accelerator = import_module(MODULES[who]).Accelerator()
    model, loader = accelerator.prepare(*parts())
    return model, loader, lambda a, b: accelerator.gather_for_metrics((a, b))


def evaluation(model: Any, loader: Any, gather: Callable[[Any, Any], tuple[Any, Any]]) -> Callable[[], int]:
    """The loop, the same for all; returns how many rows it has counted."""
    import torch

    @torch.no_grad()
    def whole() -> int:
        right = rows = 0
        for x, y in loader:
            found, labels = gather(model(x).argmax(1), y)
            right += int((found == labels).sum())
            rows += len(labels)
        return rows

    return whole


def child(count: int) -> None:
    """One of the processes: measure, and print the figures."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    calls = {who: evaluation(*through(who, count)) for who in contenders()}
    taken: dict[str, list[float]] = {who: [] for who in calls}
    for number in range(ROUNDS + 1):
        for who, call in calls.items():
            dist.barrier()
            start = time.perf_counter()
            if call() != ROWS:
                raise AssertionError(f"{who} has not counted {ROWS} rows")
            if number:
                taken[who].append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(json.dumps({who: fastest_tenth(times) for who, times in taken.items()}))


def rows() -> list[Row]:
    """Start the processes, and make a table of what the first one prints."""
    table = []
    for count in PROCESSES:
        found = processes(f"evaluation.child({count})", count)
        other = ("accelerate",) if "accelerate" in found else ()
        table.append(beside(f"an evaluation of {ROWS:,} rows, {count} processes", found, *other))
    return [*table, *missing(*PEERS.values())]
