"""
Rows that are compared with a figure of their whole batch: ``pred - other.mean(0)``, ``x / x.std()``.

A mean of such rows is not the mean over the processes of what each computes from its own shard: relativistic losses,
and normalisations that a script writes out.
"""

from __future__ import annotations

import libcst as cst

from ...facts.roles import Role
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value

_FIGURES = frozenset("mean std var sum norm median".split())
"""A maximum is none: it is taken from numbers so that their exponential stays finite, and cancels out."""
_SAME = frozenset("detach clone view reshape expand expand_as repeat unsqueeze squeeze item clamp sqrt".split())
"""Methods after which a figure of the batch is one still."""
_ROWS = (Role.OUTPUT, Role.BATCH)
_DEPTH = 4


def compares_with_batch(state: State, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether an expression takes a figure of the whole batch from its rows, or divides them by it."""
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, (cst.Subtract, cst.Divide)):
        return False
    if not _of_batch(state, unit, node.right):
        return False
    return bool(origins(state.values.get(node.left), *_ROWS)) and not _of_batch(state, unit, node.left)


def _of_batch(state: State, unit: Unit, node: cst.BaseExpression, depth: int = 0) -> bool:
    """Whether an expression is a figure of the rows of a batch."""
    if depth > _DEPTH:
        return False
    if isinstance(node, cst.Name):
        binding = unit.names.binding(node)
        values = bindings_value(unit.names, binding) if binding is not None else []
        return any(_of_batch(state, unit, value, depth + 1) for value in values)
    if isinstance(node, cst.BinaryOperation):
        sides = [_of_batch(state, unit, side, depth + 1) for side in (node.left, node.right)]
        return all(sides) or (
            any(sides) and not all(origins(state.values.get(s), *_ROWS) for s in (node.left, node.right))
        )
    if not isinstance(node, cst.Call):
        return False
    operand = node.func.value if isinstance(node.func, cst.Attribute) else None
    own = operand is not None and bool(origins(state.values.get(operand), *_ROWS))
    if method_name(node) in _SAME and operand is not None and own:
        return _of_batch(state, unit, operand, depth + 1)
    given = node.args[0].value if node.args and not own else None
    rows = own or (given is not None and bool(origins(state.values.get(given), *_ROWS)))
    return method_name(node) in _FIGURES and rows and _over_rows(node, 0 if own else 1)


def _over_rows(call: cst.Call, position: int) -> bool:
    """Whether a reduction goes over the rows: over all dimensions, or the first."""
    asked = _dimension_of(call, position)
    dims = [e.value for e in asked.elements] if isinstance(asked, (cst.Tuple, cst.List)) else [asked]
    return any(dim is None or (isinstance(dim, cst.Integer) and dim.evaluated_value == 0) for dim in dims)


def _dimension_of(call: cst.Call, position: int | None) -> cst.BaseExpression | None:
    """The dimension that a call is asked for, by keyword or position; None where it is asked for none."""
    named = [a.value for a in call.args if a.keyword is not None and a.keyword.value in ("dim", "axis")]
    plain = [a.value for a in call.args if a.keyword is None]
    if named or position is None:
        return named[0] if named else None
    return plain[position] if len(plain) > position else None
