"""
Batches that are drawn at once and kept: ``batches = list(loader)``.

Mostly the loader is read before it can be prepared; and a list says nothing of the batch in hand, so that a ragged last
one could not be weighed right.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.batches import ListedBatches
from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value
from ..syntax.walk import descendants, nodes_in
from .training import Training

_KEEPING = frozenset({"builtins.list", "builtins.tuple"})


def drained(state: State, unit: Unit, loop: cst.CSTNode) -> cst.Call | None:
    """The call that kept the batches which a loop goes through; None where it asks the loader itself."""
    header = loop.iter if isinstance(loop, (cst.For, cst.CompFor)) else None
    if header is None:
        return None
    names = list(nodes_in(header, cst.Name))
    held = [binding for name in names if (binding := unit.names.binding(name)) is not None]
    for value in (header, *(value for binding in held for value in bindings_value(unit.names, binding))):
        for call in descendants(value):
            record = state.calls.get(call) if isinstance(call, cst.Call) else None
            if record is not None and outside_name(record) in _KEEPING and origins(record.first, Role.LOADER):
                return record.node
    return None


def kept_batches(state: State, unit: Unit, training: Training) -> Iterator[Reason]:
    """A finding for each training loop of a module that goes through such a list."""
    for loop in training.train_loops:
        call = drained(state, unit, loop) if loop in unit.names.parents else None
        if call is not None:
            yield ListedBatches(call)


def kept_generators(state: State, reach: Reach) -> Iterator[cst.Call]:
    """The calls of generators that are given a loader and kept: ``batches = forever(loader)`` goes on with that one."""
    for call, record in state.calls.items():
        if any(origins(state.values.get(arg.value), Role.LOADER) for arg in call.args):
            kept = isinstance(record.unit.names.parents.get(call), cst.Assign)
            if kept and any(reach.yields(function) for function in reach.called(call)):
                yield call
