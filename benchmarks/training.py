"""A training step of models of 25 million parameters on the CPU, in pairs: raw torch (DDP), Accelerate, Fabric."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from math import sqrt
from typing import Any

from .measure import Row, missing, processes
from .together import Call, step_of

TITLE = "A training step of 25 million parameters, on the CPU"
PAIRS = {1: 200, 2: 200, 4: 64}
"""By the number of processes."""
ROUNDS = 8
"""Processes that the pairs are spread over: where a model lies in memory moves all of its steps by one per cent (four
equal models of raw DDP, beside each other, differed by that), and each round makes the models in another order."""
LIMITS = {1: 1.01, 2: 1.03, 4: None}
"""Of the time of raw torch, by the number of processes. Four have no budget: there are machines with fewer cores."""
ADDED, ADDED_EACH = 150e-6, 0.5e-6
"""Seconds of CPU time that a step may cost more, and more for each parameter tensor: noise may hide a small ratio."""
_BOUND = 1.645
"""Standard deviations up to the upper bound, one-sided, of 95 %. Of eight values, that is the second highest."""


def mlp() -> tuple[Any, Any]:
    """Six layers of 2,048."""
    import torch
    from torch import nn

    return nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(2048, 2048), nn.ReLU())]), torch.ones(16, 2048)


def transformer() -> tuple[Any, Any]:
    """Eight layers of width 512; two texts of 32 words."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return nn.TransformerEncoder(layer, 8, enable_nested_tensor=False), torch.ones(2, 32, 512)


def convolutions() -> tuple[Any, Any]:
    """Fifty convolutions of 236 channels, each with BatchNorm; four pictures."""
    import torch
    from torch import nn

    block = [(nn.Conv2d(236, 236, 3, padding=1, bias=False), nn.BatchNorm2d(236), nn.ReLU()) for _ in range(50)]
    return nn.Sequential(*[part for parts in block for part in parts]), torch.randn(4, 236, 8, 8)


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "MLP": mlp,
    "transformer": transformer,
    "50 convolutions with BatchNorm": convolutions,
}
PEERS = {"accelerate": "accelerate", "fabric": "lightning_fabric"}
"""Their packages, by what the tables call them."""
MODULES = {"torchlift": "torchlift.runtime", "accelerate": "accelerate"}
"""Where the Accelerator is."""
Prepare = Callable[[Any, Any], tuple[Any, Any, Callable[[Any], Any]]]


def contenders() -> list[str]:
    """Who is measured: ourselves, raw torch, and the peers that are installed."""
    peers = [who for who, package in PEERS.items() if find_spec(package) is not None]
    return ["torchlift", "raw torch", *peers]


def preparation(who: str, count: int) -> Prepare:
    """By whom a model and its optimizer are made ready for so many processes; and what starts the backward pass."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    if who == "raw torch":
        if count > 1 and not dist.is_initialized():
            dist.init_process_group("gloo")
        return lambda model, optimizer: (
            DistributedDataParallel(model) if count > 1 else model,
            optimizer,
            torch.Tensor.backward,
        )
    if who == "fabric":
        from lightning_fabric import Fabric  # type: ignore[import-not-found,unused-ignore]

        fabric = Fabric(accelerator="cpu", devices=count, strategy="ddp" if count > 1 else "auto")
        fabric.launch()
        return lambda model, optimizer: (*fabric.setup(model, optimizer), fabric.backward)
    accelerator = import_module(MODULES[who]).Accelerator()
    return lambda model, optimizer: (*accelerator.prepare(model, optimizer), accelerator.backward)


def steps_of(name: str, count: int, turn: int) -> dict[str, Call]:
    """A step of each, of equal models; the models are made in turn, beginning with another one each time."""
    import torch

    steps = {}
    makers = [(who, preparation(who, count)) for who in contenders()]
    first = turn % len(makers)
    for who, prepare in makers[first:] + makers[:first]:
        torch.manual_seed(0)
        model, x = MODELS[name]()
        model, optimizer, backward = prepare(model, torch.optim.SGD(model.parameters(), lr=1e-4))
        steps[who] = step_of(model, optimizer, backward, x, 1)
    return steps


def child(name: str, count: int, pairs: int, turn: int) -> None:
    """One of the processes: measure, and print seconds of every step, by the clock and of CPU time."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    steps = steps_of(name, count, turn)
    order = list(steps)
    wall: dict[str, list[float]] = {who: [] for who in steps}
    cpu: dict[str, list[float]] = {who: [] for who in steps}
    for number in range(pairs + 2):
        for who in order:
            if count > 1:
                dist.barrier()
            start, used = time.perf_counter(), time.process_time()
            steps[who]()
            if number >= 2:
                cpu[who].append(time.process_time() - used)
                wall[who].append(time.perf_counter() - start)
        order.reverse()  # so that none always comes after the same one
    model, _ = MODELS[name]()
    if count == 1 or dist.get_rank() == 0:
        print(json.dumps({"wall": wall, "cpu": cpu, "tensors": len(list(model.parameters()))}))


def median_between(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, and the bounds that it is above, and below, with 95 % each."""
    ordered = sorted(values)
    below = max(0, int(len(values) / 2 - _BOUND * sqrt(len(values)) / 2))
    return ordered[below], statistics.median(ordered), ordered[-1 - below]


def ratio(mine: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """
    The median ratio of the pairs of a round, of all rounds, with its bounds.

    Not of all pairs as if they were independent: what moves a round moves all of its pairs.
    """
    pairs = [zip(ours, others, strict=True) for ours, others in zip(mine, theirs, strict=True)]
    return median_between([statistics.median(our / other for our, other in found) for found in pairs])


def row_of(what: str, rounds: Sequence[Mapping[str, Any]], limit: float | None) -> Row:
    """Within its budget where the ratio to raw torch is, and no peer is faster; or where little CPU time is added."""
    wall = {who: [found["wall"][who] for found in rounds] for who in rounds[0]["wall"]}
    ratios = {who: ratio(wall["torchlift"], times) for who, times in wall.items() if who != "torchlift"}
    more = [zip(found["cpu"]["torchlift"], found["cpu"]["raw torch"], strict=True) for found in rounds]
    added = statistics.median(mine - other for pairs in more for mine, other in pairs)
    allowed = ADDED + ADDED_EACH * rounds[0]["tensors"]
    faster = any(low > 1 for who, (low, _, _) in ratios.items() if who != "raw torch")
    seconds = {who: statistics.median(second for found in times for second in found) for who, times in wall.items()}
    shown = [f"{seconds['torchlift'] * 1e3:.1f} ms"]
    shown += [f"{middle:.3f} x {who} ({low:.3f} to {high:.3f})" for who, (low, middle, high) in ratios.items()]
    measured = "; ".join([*shown, f"CPU time {added * 1e6:+.0f} us"])
    if limit is None:
        return Row(what, measured, figures=seconds)
    budget = f"<= {limit:g} x raw torch and no peer faster, or CPU time <= +{allowed * 1e6:.0f} us"
    kept = ratios["raw torch"][2] <= limit and not faster
    return Row(what, measured, budget, kept or added <= allowed, seconds)


def rows() -> list[Row]:
    """Measure every model on one process, on two and on four."""
    table = []
    for count, limit in LIMITS.items():
        for name in MODELS:
            rounds = [
                processes(f"training.child({name!r}, {count}, {PAIRS[count] // ROUNDS}, {turn})", count)
                for turn in range(ROUNDS)
            ]
            table.append(row_of(f"{name}, {count} process{'es' if count > 1 else ''}", rounds, limit))
    return [*table, *missing("accelerate", "lightning_fabric")]
