"""
Models that nothing puts on the device: no ``prepare`` takes them, and the script moves none.

In a script that names no device everything stays on the CPU. Once the loader is prepared its batches are on the device,
and a teacher, a feature extractor, a net that is made anew for a test must be there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

import libcst as cst

from ...facts.placement import Move, Placement
from ...facts.roles import Origin, Role
from ...facts.torch_api.kinds.training import ModelClass
from ...facts.torch_api.loading import row
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import CallRecord, State, origins
from ..training.training import Training, in_model, whole
from .moved_batches import moved_batches
from .moves import Mover

_WEIGHTS = frozenset({"parameters", "named_parameters", "buffers", "named_buffers"})
"""Methods that give a model's tensors, each to meet one of another model."""
Early = Callable[[cst.Call, Origin], bool]
_LIBRARIES = ("torchvision.models.", "timm.")
"""Where models with weights come from."""


def resting_models(
    state: State, reach: Reach, training: Training, prepared: Container[Origin], early: Early
) -> Iterator[tuple[CallRecord, Origin]]:
    """
    The models that a loop over batches on the device runs, and that nothing puts there, each with its first call; and
    the copies whose weights it joins with those of a prepared model.

    Batches of a prepared loader are there, and those that the script moves: an original that moves them, and not its
    model, is broken already. Layers of a model are a part of it. ``early``: whether a call that copies a model comes
    before its ``prepare``; later copies are where the model is.
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
            record = state.calls.get(call) if isinstance(call, cst.Call) else None
            if record is None or not isinstance(call, cst.Call):
                continue
            run = training.forwards.get(call)
            used = [] if run is None or in_model(record.unit, call) else [run]
            if method_name(call) in _WEIGHTS:
                used += [model for model in origins(record.receiver, Role.MODEL) if model.source is not None]
            for model in (whole(state, each) for each in used):
                if model in moved or model in told or model in prepared or not weighs(state, model):
                    continue
                copied = _copied(state, model)
                if copied is not None and (copied in moved or _is_late(model, copied, prepared, early)):
                    continue
                told.add(model)
                yield record, model


def _copied(state: State, model: Origin) -> Origin | None:
    """The whole model of which another one copies something: ``copy.deepcopy(self.encoder)``, in a method of it."""
    source = model.source
    return whole(state, source) if source is not None and source.role is Role.MODEL else None


def _is_late(model: Origin, copied: Origin, prepared: Container[Origin], early: Early) -> bool:
    """Whether a copy is made of a model that is on the device by then."""
    return copied in prepared and isinstance(model.node, cst.Call) and not early(model.node, copied)


def placed_models(mover: Mover, early: Early) -> Iterator[Placement]:
    """Those that are put on the device where they are made."""
    trained = {whole(mover.state, model) for model in mover.training.models}
    resting = () if mover.existing else resting_models(mover.state, mover.reach, mover.training, mover.placed, early)
    for _, model in resting:
        if isinstance(model.node, cst.Call) and model not in trained:
            yield Placement(model.node, Move.PLACE, "nothing moves it, and it computes with what is on the device")


def weighs(state: State, model: Origin, seen: frozenset[Origin] = frozenset()) -> bool:
    """Whether a model has layers: a loss of the script may be a module without any, made of others without any, and
    need no device."""
    if model.source is not None and model.source.role is Role.MODEL and model.source not in seen:
        return weighs(state, model.source, seen | {model})  # a copy
    parts = [part for part in state.parts.get(model, {}) if isinstance(part, Origin)]
    for part in parts:
        if part.role is Role.MODEL and part not in seen:
            if part not in state.klass or weighs(state, part, seen | {model}):
                return True
    found = row(model.qualified) if model not in state.klass and not parts else None
    layer = found is not None and isinstance(found.transfer, ModelClass) and not found.transfer.bare
    return layer or model.qualified.startswith(_LIBRARIES)
