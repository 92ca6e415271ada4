"""
Models that nothing puts on the device: no ``prepare`` takes them, and the script moves none.

In a script that names no device everything stays on the CPU. Once the loader is prepared its batches are on the device,
and a teacher, a feature extractor, a net that is made anew for a test must be there, too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...facts.module import Move, Placement
from ...facts.roles import Origin, Role
from ...facts.torch_api.kinds.training import ModelClass
from ...facts.torch_api.loading import row
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import CallRecord, State, origins
from ..training.training import Training, whole
from .moved_batches import moved_batches
from .moves import Mover

_LIBRARIES = ("torchvision.models.", "timm.")
"""Where models with weights come from."""


def resting_models(
    state: State, reach: Reach, training: Training, prepared: Container[Origin]
) -> Iterator[tuple[CallRecord, Origin]]:
    """
    The models that a loop over batches on the device runs, and that nothing puts there, each with its first call.

    Batches of a prepared loader are there, and those that the script moves: an original that moves them, and not its
    model, is broken already. Layers of a model are a part of it.
    """
    moved = {
        whole(state, origin)
        for record in state.calls.values()
        if method_name(record.node) in ("to", "cuda")
        for origin in origins(record.receiver, Role.MODEL)
    }
    arriving, told = moved_batches(state, reach), set[Origin]()
    for loop in (*training.train_loops, *training.eval_loops):
        if not any(loader in arriving or loader in prepared for loader in reach.loaders(loop)):
            continue
        for call in reach.runs_in(loop):
            model = training.forwards.get(call) if isinstance(call, cst.Call) else None
            record = state.calls.get(call) if isinstance(call, cst.Call) else None
            if model is None or record is None or _in_class(record):
                continue
            model = whole(state, model)
            if model not in moved and model not in told and model not in prepared and weighs(state, model):
                told.add(model)
                yield record, model


def placed_models(mover: Mover) -> Iterator[Placement]:
    """Those that are put on the device where they are made."""
    trained = {whole(mover.state, model) for model in mover.training.models}
    resting = () if mover.existing else resting_models(mover.state, mover.reach, mover.training, mover.placed)
    for _, model in resting:
        if isinstance(model.node, cst.Call) and model not in trained:
            yield Placement(model.node, Move.PLACE, "nothing moves it, and it computes with what is on the device")


def _in_class(record: CallRecord) -> bool:
    """Whether a call is a part of a class: of a model's own forward pass, for one."""
    return any(isinstance(above, cst.ClassDef) for above in record.unit.names.ancestors(record.node))


def weighs(state: State, model: Origin, seen: frozenset[Origin] = frozenset()) -> bool:
    """Whether a model has layers: a loss of the script may be a module without any, made of others without any, and
    need no device."""
    parts = [part for part in state.parts.get(model, {}) if isinstance(part, Origin)]
    for part in parts:
        if part.role is Role.MODEL and part not in seen:
            if part not in state.klass or weighs(state, part, seen | {model}):
                return True
    found = row(model.qualified) if model not in state.klass and not parts else None
    layer = found is not None and isinstance(found.transfer, ModelClass) and not found.transfer.bare
    return layer or model.qualified.startswith(_LIBRARIES)
