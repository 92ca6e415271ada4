"""Memory of a process that trains 25 million parameters on the CPU, beside raw torch (DDP), Accelerate and Fabric."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping

from .measure import Row, missing, processes
from .together import step_of
from .training import LIMITS, MODELS, PEERS, contenders, preparation

TITLE = "The most memory that a process holds for training 25 million parameters, on the CPU"
STEPS = 4
_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes of what the system counts memory in."""


def child(name: str, count: int, who: str) -> None:
    """One of the processes: train a little, and print what that held at most beside what was imported, in bytes."""
    import torch

    torch.set_num_threads(1)
    prepare = preparation(who, count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.manual_seed(0)
    model, x = MODELS[name]()
    model, optimizer, backward = prepare(model, torch.optim.SGD(model.parameters(), lr=1e-4))
    step_of(model, optimizer, backward, x, STEPS)()
    held = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * _UNIT
    if count == 1 or torch.distributed.get_rank() == 0:
        print(json.dumps({"held": held}))


def row_of(what: str, held: Mapping[str, int]) -> Row:
    """Ours, and how many times that of the others it is."""
    mine = held["torchlift"]
    shown = [f"{mine / 2**20:.0f} MiB"]
    shown += [f"{mine / other:.2f} x {who}" for who, other in held.items() if who != "torchlift"]
    return Row(what, "; ".join(shown), figures=held)


def rows() -> list[Row]:
    """Each trains in processes of its own."""
    table = []
    for count in LIMITS:
        for name in MODELS:
            held = {who: processes(f"memory.child({name!r}, {count}, {who!r})", count)["held"] for who in contenders()}
            table.append(row_of(f"memory: {name}, {count} process{'es' if count > 1 else ''}", held))
    return [*table, *missing(*PEERS.values())]
