"""
Rows that are compared with a figure of their whole batch: ``pred - other.mean(0)``, ``x / x.std()``.

A mean of such rows is not the mean over the processes of what each computes from its own shard: relativistic losses,
and normalisations that a script writes out.
"""

from __future__ import annotations

import libcst as cst

from ..dataflow.values import CallRecord, State, Unit
from ..layouts.engine.layout import Unclear, held
from ..layouts.loop_layouts import layouts_of


def compares_with_batch(state: State, record: CallRecord, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether an operation from which a backward pass starts takes a figure of the whole batch from its rows, or
    divides them by it. A figure that weighs them, or is added to them, is not compared."""
    compares = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (cst.Subtract, cst.Divide))
    if not compares and not isinstance(node, cst.Call):
        return False
    assert isinstance(node, cst.BaseExpression)
    loops = layouts_of(state).around(record.unit, record.node)
    found = [loop.value(node) for loop in loops if loop.ran(node)] if loops else [layouts_of(state).value(unit, node)]
    for layout in (one for given in found for one in held(given)):
        if isinstance(layout, Unclear) and layout.compared and layout.node is node:
            return True
    return False
