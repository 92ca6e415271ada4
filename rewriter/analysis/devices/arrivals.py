"""
Loops that read a loader which stays whole, in a script that moves nothing: their batches meet a model on the device.

``prepare`` moves the batches of what it takes. What is shared among no processes stays on the CPU, unless each batch is
moved as it comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from ...facts.placement import Arrival
from ...facts.roles import Origin, Role
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..syntax.walk import descendants


def arrivals(
    state: State, unit: Unit, loop: cst.CSTNode, loaders: Collection[Origin], moved: Collection[Origin]
) -> list[Arrival]:
    """
    The places where the batches of a loop come, and are to be moved: where it begins, or where it calls ``next``.

    ``loaders``: what the loop iterates; ``moved``: the loaders whose batches the script moves by itself. None where it
    moves them all, or where no names hold them.
    """
    still = [loader for loader in loaders if loader not in moved]
    if not still or not isinstance(loop, cst.For) or not isinstance(loop.body, cst.IndentedBlock):
        return []
    names = dict.fromkeys(_holding(state, unit, loop.target, still))
    if names:
        return [Arrival(loop, tuple(names))]
    found = []
    for statement in descendants(loop.body):
        line = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        if isinstance(line, cst.Assign) and isinstance(line.value, cst.Call) and method_name(line.value) == "next":
            held = (name for target in line.targets for name in _holding(state, unit, target.target, still))
            names = dict.fromkeys(held)
            if names:
                found.append(Arrival(loop, tuple(names), statement))
    return found


def _holding(state: State, unit: Unit, target: cst.BaseExpression, loaders: Collection[Origin]) -> Iterator[str]:
    """The names in a target that hold what loaders yield; none where it has more than names."""
    nodes = list(descendants(target))
    if any(isinstance(node, (cst.Attribute, cst.Subscript)) for node in nodes):
        return
    for node in nodes:
        binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
        if isinstance(node, cst.Name) and binding is not None and node.value != "_":
            if any(batch.source in loaders for batch in origins(state.binding(binding), Role.BATCH)):
                yield node.value
