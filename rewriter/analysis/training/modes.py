"""Models that are in training mode where they are evaluated: no ``model.eval()`` comes before."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.torch_api import questions
from ..dataflow.call_graph import Code, Reach
from ..dataflow.values import Unit
from .training import Training, method_name, outside_name


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
    """Whether some way to a node comes by no ``.eval()``, and by nothing that may have called it."""
    return any(_starts_training(reach, unit, node, set()))


def _starts_training(reach: Reach, unit: Unit, node: cst.CSTNode, seen: set[Code]) -> Iterator[bool]:
    code, start = unit.names.function(node), unit.names.order(node)
    if code in seen or _evaluates(reach, unit, code, start):
        return
    seen.add(code)
    if isinstance(code, cst.Module):
        yield True
    for site in reach.sites(code):
        yield from _starts_training(reach, reach.state.calls[site].unit, site, seen)


def _evaluates(reach: Reach, unit: Unit, code: Code, before: int) -> bool:
    """Whether code that comes before a place in a function changes the mode, or may do so."""
    early = (c for c in unit.names.calls if unit.names.function(c) is code and unit.names.order(c) < before)
    return any(isinstance(n, cst.Call) and _sets_mode(n) for call in early for n in reach.runs(call, unit))


def _sets_mode(call: cst.Call) -> bool:
    name = method_name(call)
    return isinstance(call.func, cst.Attribute) and (
        (name == "eval" and not call.args) or (name == "train" and len(call.args) == 1)
    )
