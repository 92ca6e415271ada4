"""
Loaders are prepared, or their batches are moved to the accelerator's device.

The second is not enough where a loop trains, or gathers what it computes: every process would have the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.callees import method_name, outside_name
from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.values import Unit
from ..analysis.devices.moved_batches import moved_batches
from ..facts.roles import Origin
from ..facts.torch_api import process_calls
from .program import EmittedProgram
from .violation import Violation


class Unprepared(NamedTuple):
    """A loop over a loader that is not prepared."""

    unit: Unit
    loop: cst.CSTNode
    loader: Origin
    is_moved: bool
    """Whether some batch of the loader is moved to a device."""


def unprepared(program: EmittedProgram) -> Iterator[Unprepared]:
    """The loops over loaders that are not prepared, where every process trains on all batches, gathers them, or has
    them on another device than the model."""
    on_device = moved_batches(program.state, program.reach)
    shared = _shared_by_hand(program)
    for loop in (*program.training.train_loops, *program.training.eval_loops):
        unit = program.unit_of(loop)
        if unit is None:
            continue
        for loader in program.reach.loaders(loop):
            if loader in program.prepared or program.replaced(unit, iterated(loop), loader):
                continue
            joined = not shared and (loop in program.training.train_loops or _gathers(program, loop))
            if loader not in on_device or joined:
                yield Unprepared(unit, loop, loader, loader in on_device)


def prepared(program: EmittedProgram) -> Iterator[Violation]:
    """The loaders whose batches every process trains on or gathers, or that are not on the device of the model."""
    for found in unprepared(program) if program.accelerated else ():
        words = "this loop iterates a loader that is not prepared, and its batches are not moved"
        if found.is_moved:
            verb = "trains on" if found.loop in program.training.train_loops else "gathers"
            words = f"this loop iterates a loader that is not prepared: every process {verb} all of its batches"
        place = CodePlace(found.unit, iterated(found.loop))
        yield Violation("loader-prepared", place, words, program.made(found.loader))


def iterated(loop: cst.CSTNode) -> cst.CSTNode:
    return loop.iter if isinstance(loop, (cst.For, cst.CompFor)) else loop


def _shared_by_hand(program: EmittedProgram) -> bool:
    """Whether the program gives each process its own part of something itself."""
    return bool(program.cuts) or any(
        process_calls.is_distributed_sampler(outside_name(record)) for record in program.records
    )


def _gathers(program: EmittedProgram, loop: cst.CSTNode) -> bool:
    """Whether a loop joins the rows of its batches over the processes."""
    calls = (program.state.calls.get(node) for node in program.reach.runs_in(loop) if isinstance(node, cst.Call))
    return any(method_name(r.node) == "gather_for_metrics" for r in calls if r is not None and r in program.accelerated)
