"""Every loader that a training loop iterates is prepared, or its batches are moved to the accelerator's device."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.values import origins
from ..analysis.training.training import method_name
from ..facts.roles import Origin, Role
from .program import EmittedProgram
from .violation import CodePlace, Violation

_MOVES = frozenset({"to", "cuda", "send_to_device", "to_device", "copy_"})


def prepared(program: EmittedProgram) -> Iterator[Violation]:
    """The loaders whose batches are not moved to the device of the model."""
    if not program.accelerated:
        return
    moved = _moved(program)
    for loop in (*program.training.train_loops, *program.training.eval_loops):
        unit = program.unit_of(loop)
        if unit is None:
            continue
        for loader in program.reach.loaders(loop):
            if loader in program.prepared or loader in moved or program.replaced(unit, _iterated(loop), loader):
                continue
            words = "this loop iterates a loader that is not prepared, and its batches are not moved"
            yield Violation("loader-prepared", CodePlace(unit, _iterated(loop)), words, program.made(loader))


def _iterated(loop: cst.CSTNode) -> cst.CSTNode:
    return loop.iter if isinstance(loop, (cst.For, cst.CompFor)) else loop


def _moved(program: EmittedProgram) -> set[Origin]:
    """The loaders of which some batch is moved."""
    found: set[Origin] = set()
    for record in program.records:
        if method_name(record.node) in _MOVES:
            for slot in (record.receiver, record.first):
                found.update(o.source for o in origins(slot, Role.BATCH) if o.source is not None)
    return found
