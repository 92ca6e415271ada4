"""One training step of a tiny model, and reading alone, one process: raw torch, the runtime, Accelerate, Fabric."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from .measure import Row, beside, calls_in_turn, missing

TITLE = "One process: a training step of a tiny model, loader included; and the loader alone (CPU time)"
STEPS = 64
Epoch = Callable[[], None]


def parts() -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    """A model of 2,762 parameters, SGD, and batches of 32 rows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    data = TensorDataset(torch.randn(STEPS * 32, 32), torch.randint(10, (STEPS * 32,)))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(data, batch_size=32)


def epochs_of(model: Any, optimizer: Any, loader: Any, backward: Callable[[torch.Tensor], None]) -> tuple[Epoch, Epoch]:
    """The loop, and the loader alone; the same for all."""

    def epoch() -> None:
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            backward(loss)
            optimizer.step()

    def reading() -> None:
        for _ in loader:
            pass

    return epoch, reading


def through(accelerator: Any) -> tuple[Epoch, Epoch]:
    """Through an Accelerator."""
    model, optimizer, loader = accelerator.prepare(*parts())
    return epochs_of(model, optimizer, loader, accelerator.backward)


def through_fabric() -> tuple[Epoch, Epoch]:
    """Through Lightning's Fabric."""
    from lightning_fabric import Fabric  # type: ignore[import-not-found,unused-ignore]

    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer, loader = parts()
    model, optimizer = fabric.setup(model, optimizer)
    return epochs_of(model, optimizer, fabric.setup_dataloaders(loader), fabric.backward)


def rows(rounds: int = 25) -> list[Row]:
    """Measure in turn."""
    from torchlift.runtime import Accelerator

    torch.set_num_threads(1)
    runs = {"torchlift": through(Accelerator(cpu=True)), "raw torch": epochs_of(*parts(), torch.Tensor.backward)}
    if find_spec("accelerate") is not None:
        import accelerate  # type: ignore[import-not-found,import-untyped,unused-ignore]

        runs["accelerate"] = through(accelerate.Accelerator(cpu=True))
    if find_spec("lightning_fabric") is not None:
        runs["fabric"] = through_fabric()
    table = []
    for what, which, limit in (("a training step", 0, 1.15), ("a batch of the loader", 1, 1.05)):
        taken = calls_in_turn({name: epochs[which] for name, epochs in runs.items()}, rounds)
        one = {name: seconds / STEPS for name, seconds in taken.items()}
        table.append(beside(f"{what}, 1 process", one, "raw torch", limit, unit=1e-6))
    return [*table, *missing("accelerate", "lightning_fabric")]
