"""
Totals that are divided by a number that is written out: ``total / 1000``.

Such a figure is a sum over the batches in another unit, and no average over them: it needs the batches of all
processes.
"""

from __future__ import annotations

from collections.abc import Container

import libcst as cst

from ..dataflow.constant_values import constants_of
from ..dataflow.values import State, Unit
from ..syntax.scopes import Binding


def by_constants(
    state: State, unit: Unit, total: Binding, inside: Container[cst.CSTNode]
) -> list[cst.BaseExpression | None]:
    """
    What a total is divided by, for each read of it after its loop: a constant, or None for anything else.

    Args:
        state: the program.
        unit: the module.
        total: what is added to in the loop; of one that the loop begins anew nothing is said.
        inside: the nodes of the loop.
    """
    changes = [(d, unit.names.parents.get(d)) for d in total.definitions]
    if any(d in inside and not isinstance(change, cst.AugAssign) for d, change in changes):
        return []
    found: list[cst.BaseExpression | None] = []
    for d, change in changes:
        if d not in inside and isinstance(change, cst.AugAssign):
            divides = isinstance(change.operator, cst.DivideAssign) and is_written_number(state, unit, change.value)
            found.append(change.value if divides else None)
    if found:
        return found
    changed = {d for d, change in changes if isinstance(change, cst.AugAssign)}
    return [_divisor(state, unit, read) for read in total.reads if read not in inside and read not in changed]


def _divisor(state: State, unit: Unit, read: cst.CSTNode) -> cst.BaseExpression | None:
    """The constant that a read is divided by; None where there is none, or where something else divides it, too."""
    node, divisor = read, None
    while isinstance(above := unit.names.parents.get(node), cst.BinaryOperation):
        if isinstance(above.operator, cst.Divide) and above.left is node:
            if not is_written_number(state, unit, above.right):
                return None
            divisor = above.right
        elif not isinstance(above.operator, cst.Multiply):
            break
        node = above
    if isinstance(above, cst.Assign) and len(above.targets) == 1:
        target = above.targets[0].target
        figure = unit.names.binding(target) if isinstance(target, cst.Name) else None
        if figure is None or any(_is_divided(unit, other) for other in figure.reads):
            return None
    return divisor


def _is_divided(unit: Unit, read: cst.CSTNode) -> bool:
    above = unit.names.parents.get(read)
    return isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.Divide) and above.left is read


def is_written_number(state: State, unit: Unit, node: cst.BaseExpression) -> bool:
    """Whether an expression is one of a few numbers that are written out in the program, here or elsewhere."""
    values = constants_of(state).of(unit, node)
    return values is not None and all(isinstance(value, (int, float)) for value in values)
