"""
One GPU: epochs of a tiny model, of a wide one in bf16, and of pictures that are copied while it computes; the most
memory that they hold; steps in eight bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from .measure import Row, beside, calls_in_turn, missing

TITLE = "One GPU: steps, mixed precision, and copies beside the computing (wall clock, the device waited for)"
STEPS = 64
Backward = Callable[[torch.Tensor], Any]
Epoch = Callable[[], None]


def tiny() -> tuple[nn.Module, DataLoader[Any]]:
    """A model of 2,762 parameters, and batches of 32 rows: what is measured is the way there."""
    data = TensorDataset(torch.randn(STEPS * 32, 32), torch.randint(10, (STEPS * 32,)))
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)), DataLoader(data, batch_size=32)


def wide() -> tuple[nn.Module, DataLoader[Any]]:
    """Three layers of 2,048, and batches of 256 rows."""
    data = TensorDataset(torch.randn(STEPS * 256, 2048), torch.randint(10, (STEPS * 256,)))
    layers = [nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)]
    return nn.Sequential(*layers), DataLoader(data, batch_size=256)


def pictures() -> tuple[nn.Module, DataLoader[Any]]:
    """Batches of 64 pictures of 3 x 128 x 128 (12 MiB) in pinned memory, read by two workers."""
    rows = STEPS * 16
    data = TensorDataset(torch.randn(rows, 3, 128, 128), torch.randint(10, (rows,)))
    net = nn.Sequential(nn.Conv2d(3, 64, 5), nn.ReLU(), nn.Conv2d(64, 64, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    head = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(net, head), DataLoader(data, 64, num_workers=2, pin_memory=True, persistent_workers=True)


def epoch_of(model: Any, optimizer: Any, batches: Callable[[], Any], backward: Backward) -> Epoch:
    """The loop, the same for all; each loss is looked at, as scripts do that log it."""

    def epoch() -> None:
        for x, y in batches():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x).float(), y)
            backward(loss)
            optimizer.step()
            loss.item()

    return epoch


def raw(parts: Callable[[], tuple[nn.Module, DataLoader[Any]]], precision: str, device: torch.device) -> Epoch:
    """As one would write it by hand."""
    model, loader = parts()
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def forward(x: torch.Tensor) -> Any:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            return model(x)

    def batches() -> Any:
        for x, y in loader:
            yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)

    return epoch_of(forward, optimizer, batches, torch.Tensor.backward)


def through(accelerator: Any, parts: Callable[[], tuple[nn.Module, DataLoader[Any]]]) -> Epoch:
    """Through an Accelerator."""
    model, loader = parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    return epoch_of(model, optimizer, lambda: loader, accelerator.backward)


def to_its_end(epoch: Epoch, device: torch.device) -> Epoch:
    """And all that it has asked of the device."""

    def whole() -> None:
        epoch()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return whole


def rows(rounds: int = 12, device: torch.device | None = None) -> list[Row]:
    """Measure in turn; nothing on a machine without a GPU."""
    if device is None:
        if not torch.cuda.is_available():
            return []
        device = torch.device("cuda", torch.cuda.current_device())
    from torchlift.runtime import Accelerator

    cases = (
        ("tiny model", tiny, "no"),
        ("wide model in bf16", wide, "bf16"),
        ("pictures, two workers", pictures, "no"),
    )
    table = []
    for what, parts, precision in cases:
        settings = {"mixed_precision": precision, "cpu": device.type == "cpu"}
        epochs = {"torchlift": through(Accelerator(**settings), parts), "raw torch": raw(parts, precision, device)}  # type: ignore[arg-type]
        if find_spec("accelerate") is not None:
            import accelerate  # type: ignore[import-not-found,import-untyped,unused-ignore]

            accelerate.state.AcceleratorState._reset_state(True)
            epochs["accelerate"] = through(accelerate.Accelerator(**settings), parts)
        whole = {name: to_its_end(epoch, device) for name, epoch in epochs.items()}
        taken = calls_in_turn(whole, rounds, time.perf_counter)
        table.append(beside(f"an epoch, {what}, 1 GPU", taken, "raw torch", 1.15))
        if device.type == "cuda":
            table.append(_memory(what, whole, device))
    return [*table, *_eight_bits(rounds), *missing("accelerate", "torchao")]


def _memory(what: str, epochs: dict[str, Epoch], device: torch.device) -> Row:
    """The most memory of the device that tensors take in an epoch, beyond what is held before it."""
    peaks = {}
    for name, epoch in epochs.items():
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        epoch()
        peaks[name] = (torch.cuda.max_memory_allocated(device) - before) / 2**20
    mine = peaks["torchlift"]
    shown = [f"{mine:.2f} MiB", *(f"{name}: {one:.2f} MiB" for name, one in peaks.items() if name != "torchlift")]
    return Row(f"most memory in an epoch, {what}, 1 GPU", "; ".join(shown), figures=peaks)


def _eight_bits(rounds: int) -> list[Row]:
    """Steps of eight layers of 4,096 on 4,096 rows, beside raw torchao; and the same in bf16."""
    if find_spec("torchao") is None:
        return []
    from . import eight_bits

    table = []
    for compiled in (False, True):
        for kind in (*eight_bits.KINDS, "bf16"):
            calls = {who: eight_bits.step_of(who, kind, 4096, 4096, compiled) for who in eight_bits.WHO}
            taken = calls_in_turn(calls, rounds * 4, time.perf_counter)
            what = f"a {'compiled ' if compiled else ''}step in {kind} of eight layers of 4,096, 1 GPU"
            table.append(beside(what, taken, "raw torch", 1.05))
            torch.cuda.empty_cache()
    return table
