"""Models that compute with batches on a device are on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from ..analysis.devices.resting_models import resting_models
from ..facts.roles import Origin
from .program import EmittedProgram
from .violation import Violation


def placed(program: EmittedProgram) -> Iterator[Violation]:
    """Each model that a loop over batches on the device runs is prepared, or moved."""
    told = {model for optimizer in program.training.optimizers for model in program.models_of(optimizer)}
    told.update(program.updated_by_hand)  # of those that are trained, more is asked
    for record, model in resting_models(
        program.state, program.reach, program.training, program.prepared, partial(_early, program)
    ):
        if model not in told and not program.preparing(model):
            words = "this model computes with batches on the device, but it is not prepared, and not moved"
            yield Violation("model-placed", program.at(record), words, program.made(model))


def _early(program: EmittedProgram, call: cst.Call, model: Origin) -> bool:
    """Whether a call comes before the one that prepares a model, in the same function."""
    unit, prepare = program.state.calls[call].unit, program.preparing(model)
    if prepare is None or prepare.unit is not unit:
        return prepare is None
    names = unit.names
    here = names.function(call) is names.function(prepare.node)
    return here and names.order(call) < names.order(prepare.node)
