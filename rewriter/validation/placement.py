"""Models that compute with batches on a device are on it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import origins
from ..analysis.devices.moved_batches import moved_batches
from ..analysis.training.training import whole
from ..facts.roles import Origin, Role
from .program import EmittedProgram
from .violation import Violation

_LIBRARIES = ("torchvision.models.", "timm.")
"""Where models with weights come from."""


def placed(program: EmittedProgram) -> Iterator[Violation]:
    """
    Each model that a loop over batches on the device runs is prepared, or moved.

    Batches of a prepared loader are there, and those that the script moves: an original that moves them, and not its
    model, is broken already.
    """
    on_device = moved_batches(program.state, program.reach) | program.prepared.keys()
    moved = {
        whole(program.state, origin)
        for record in program.records
        if method_name(record.node) in ("to", "cuda")
        for origin in origins(record.receiver, Role.MODEL)
    }
    told = {model for optimizer in program.training.optimizers for model in program.models_of(optimizer)}
    told.update(program.updated_by_hand)  # of those that are trained, more is asked
    for loop in (*program.training.train_loops, *program.training.eval_loops):
        if on_device.isdisjoint(program.reach.loaders(loop)):
            continue
        for call in program.reach.runs_in(loop):
            model = program.training.forwards.get(call) if isinstance(call, cst.Call) else None
            record = program.state.calls.get(call) if isinstance(call, cst.Call) else None
            if model is None or record is None or program.in_class(record):
                continue
            model = whole(program.state, model)
            if model not in moved and model not in told and _weighs(program, model) and not program.preparing(model):
                told.add(model)
                words = "this model computes with batches on the device, but it is not prepared, and not moved"
                yield Violation("model-placed", program.at(record), words, program.made(model))


def _weighs(program: EmittedProgram, model: Origin, seen: frozenset[Origin] = frozenset()) -> bool:
    """Whether a model has layers: a loss of the script may be a module without any, made of others without any, and
    need no device."""
    parts = [part for part in program.state.parts.get(model, {}) if isinstance(part, Origin)]
    for part in parts:
        if part.role is Role.MODEL and part not in seen:
            if part not in program.state.klass or _weighs(program, part, seen | {model}):
                return True
    return model.qualified.startswith(_LIBRARIES)
