"""Sums to which each step adds a number, and that can have a tensor added instead: ``total += loss.item()``."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.module import Deferred
from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..syntax.scopes import Binding
from ..training.training import Training
from .steps import now_and_then


def deferred(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Deferred]:
    """
    The reads of a module that can wait until somebody shows the sum.

    Only of losses, which are floats, in a variable of the same function that no step reads: nothing would be gained.
    """
    for loop in training.train_loops:
        if loop not in unit.names.parents:
            continue
        for node in unit.names.every(cst.AugAssign):
            if loop not in unit.names.ancestors(node):
                continue
            call, target = node.value, node.target
            if not isinstance(node.operator, cst.AddAssign) or not isinstance(call, cst.Call) or call.args:
                continue
            record = state.calls.get(call)
            loss = record is not None and method_name(call) == "item" and origins(record.receiver, Role.LOSS)
            binding = unit.names.binding(target) if isinstance(target, cst.Name) else None
            if loss and binding is not None and not now_and_then(unit, node):
                reads = _reads(unit, reach, loop, node, binding)
                if reads is not None:
                    yield Deferred(call, reads)


def _reads(
    unit: Unit, reach: Reach, loop: cst.CSTNode, node: cst.AugAssign, binding: Binding
) -> tuple[cst.Name, ...] | None:
    """Where the sum is read, to be made a number there; None where that is in each step, or where it is another's."""
    names, code = unit.names, unit.names.function(node)
    if binding.scope.node is not code or any(d is not node.target and _adds(unit, d) for d in binding.definitions):
        return None
    reads = [read for read in binding.reads if read is not node.target and read in names.parents]
    for read in reads:
        if names.function(read) is not code or (reach.is_run_in(loop, read) and not now_and_then(unit, read)):
            return None
    return tuple(reads)


def _adds(unit: Unit, definition: cst.CSTNode) -> bool:
    """Whether a definition is no plain number: another sum, or the target of a loop."""
    target = unit.names.parents.get(definition)
    assign = unit.names.parents.get(target) if isinstance(target, cst.AssignTarget) else None
    return not isinstance(assign, cst.Assign) or not isinstance(assign.value, (cst.Integer, cst.Float))
