"""Models that are in training mode where they are evaluated: no ``model.eval()`` comes before."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from ...facts.torch_api import questions
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import Unit
from .training import Training


def noisy_layer(reach: Reach, training: Training, unit: Unit, node: cst.CSTNode) -> tuple[Unit, cst.Call] | None:
    """The call that makes a layer which draws random numbers in training mode, of a model that runs with a node."""
    state = reach.state
    models = {
        training.forwards[n]: None for n in reach.runs(node, unit) if isinstance(n, cst.Call) and n in training.forwards
    }
    for model in models:
        for made in reach.runs(model.node, reach.unit_of(model.node, unit)):
            record = state.calls.get(made) if isinstance(made, cst.Call) else None
            if record is not None and questions.is_noisy(outside_name(record)):
                return record.unit, record.node
    return None


def in_training_mode(reach: Reach, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether some way to a node comes by no ``.eval()``, and by no function that may have called it."""
    setters = {u.names.function(call) for u in reach.units for call in u.names.calls if _sets_mode(call)}
    return any(_starts_training(reach, unit, node, setters, set()))


def _starts_training(
    reach: Reach, unit: Unit, node: cst.CSTNode, setters: Collection[Code], seen: set[Code]
) -> Iterator[bool]:
    code, start = unit.names.function(node), unit.names.order(node)
    if code in seen:
        return
    early = (c for c in unit.names.calls if unit.names.function(c) is code and unit.names.order(c) < start)
    if any(_sets_mode(call) or _comes_to(reach, call, setters) for call in early):
        return
    seen.add(code)
    if isinstance(code, cst.Module):
        yield True
    for site in reach.sites(code):
        yield from _starts_training(reach, reach.state.calls[site].unit, site, setters, seen)


def _comes_to(reach: Reach, call: cst.Call, setters: Collection[Code]) -> bool:
    """Whether a call runs one of some functions."""
    return any(code in setters for function in reach.called(call) for code in reach.below(function))


def _sets_mode(call: cst.Call) -> bool:
    name = method_name(call)
    return isinstance(call.func, cst.Attribute) and (
        (name == "eval" and not call.args) or (name == "train" and len(call.args) == 1)
    )
