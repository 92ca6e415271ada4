"""What two processes do together on the CPU: steps, collectives, reading for all; beside torch, Accelerate, Fabric."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from .measure import Row, beside, fastest_tenth, missing, processes

TITLE = "Two processes on the CPU: a call of what they do together (all by gloo)"
PROCESSES = 2
ROUNDS = 100
Call = Callable[[], Any]
BUDGETS = {
    "two steps of a tiny model": ("raw torch", 1.3),
    "gather of 40 tensors": ("accelerate", 1 / 8),
}
"""What the runtime may take, as a part of what the other takes. What is not listed is only shown beside."""


def step_of(model: Any, optimizer: Any, backward: Callable[[Any], None], x: Any, count: int = 2) -> Call:
    """Some training steps."""

    def step() -> None:
        for _ in range(count):
            optimizer.zero_grad()
            backward(model(x).square().mean())
            optimizer.step()

    return step


def parts() -> tuple[Any, Any]:
    """A model of 2,762 parameters and its optimizer."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def loader() -> Any:
    """Batches of 8 rows, 4 for each process: dicts of four tensors, as for a language model."""
    import torch
    from torch.utils.data import DataLoader

    names = ("input_ids", "attention_mask", "token_type_ids", "labels")
    return DataLoader([{name: torch.ones(16, dtype=torch.long) for name in names}] * 128, batch_size=4)  # type: ignore[arg-type,var-annotated,unused-ignore]


def through(accelerator: Any, reading: Any) -> dict[str, Call]:
    """The calls of an Accelerator; `reading` is one whose loaders are read by one process."""
    import torch

    x = torch.ones(32, 32)
    tree = {f"t{i}": torch.ones(16 + i % 3) for i in range(40)}
    big = torch.ones(1 << 20)
    model, optimizer = accelerator.prepare(*parts())
    batches = reading.prepare(loader())
    return {
        "two steps of a tiny model": step_of(model, optimizer, accelerator.backward, x),
        "gather of 40 tensors": lambda: accelerator.gather(tree),
        "pad of 40 tensors": lambda: accelerator.pad_across_processes(tree),
        "gather of 4 MiB": lambda: accelerator.gather(big),
        "16 batches that one process reads": lambda: [None for _ in batches],
    }


def raw() -> dict[str, Call]:
    """The same with nothing but torch, as one would write it by hand."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model, optimizer = parts()
    rows = [torch.ones(18) for _ in range(2)]
    tensors = [torch.ones(16 + i % 3) for i in range(40)]
    big, both = torch.ones(1 << 20), torch.empty(2 << 20)

    def gather_one_by_one() -> None:
        for tensor in tensors:
            dist.all_gather([row[: len(tensor)] for row in rows], tensor)

    return {
        "two steps of a tiny model": step_of(
            DistributedDataParallel(model), optimizer, torch.Tensor.backward, torch.ones(32, 32)
        ),
        "gather of 40 tensors": gather_one_by_one,
        "gather of 4 MiB": lambda: dist.all_gather_into_tensor(both, big),
    }


def through_fabric() -> dict[str, Call]:
    """What Lightning's Fabric has of these."""
    import torch
    from lightning_fabric import Fabric  # type: ignore[import-not-found,unused-ignore]

    fabric = Fabric(accelerator="cpu", devices=PROCESSES, strategy="ddp")
    fabric.launch()
    model, optimizer = fabric.setup(*parts())
    big = torch.ones(1 << 20)
    tensors = {f"t{i}": torch.ones(16 + i % 3) for i in range(40)}
    return {
        "two steps of a tiny model": step_of(model, optimizer, fabric.backward, torch.ones(32, 32)),
        "gather of 40 tensors": lambda: fabric.all_gather(tensors),
        "gather of 4 MiB": lambda: fabric.all_gather(big),
    }


def child() -> None:
    """One of the processes: measure, and print the figures."""
    import torch
    import torch.distributed as dist

    from torchlift.runtime import Accelerator, DataLoaderConfiguration

    torch.set_num_threads(1)
    ours = Accelerator(), Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    runs = {"torchlift": through(*ours), "raw torch": raw()}
    if find_spec("accelerate") is not None:
        import accelerate  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from accelerate.utils import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
            DataLoaderConfiguration as Theirs,
        )

        reading = accelerate.Accelerator(dataloader_config=Theirs(dispatch_batches=True))
        runs["accelerate"] = through(accelerate.Accelerator(), reading)
    if find_spec("lightning_fabric") is not None:
        runs["fabric"] = through_fabric()
    found: dict[str, dict[str, float]] = {}
    for what in runs["torchlift"]:
        taken: dict[str, list[float]] = {name: [] for name, calls in runs.items() if what in calls}
        for number in range(ROUNDS):
            for name in taken:
                dist.barrier()
                start = time.perf_counter()
                runs[name][what]()
                if number >= 2:
                    taken[name].append(time.perf_counter() - start)
        found[what] = {name: fastest_tenth(times) for name, times in taken.items()}
    if ours[0].is_main_process:
        print(json.dumps(found))


def rows() -> list[Row]:
    """Start the processes, and make a table of what the first one prints."""
    found = processes("together.child()", PROCESSES)
    table = [beside(f"{what}, 2 processes", taken, *BUDGETS.get(what, ())) for what, taken in found.items()]
    return [*table, *missing("accelerate", "lightning_fabric")]
