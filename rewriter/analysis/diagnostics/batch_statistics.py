"""
Rows that are compared with a figure of their whole batch: ``pred - other.mean(0)``, ``x / x.std()``.

A mean of such rows is not the mean over the processes of what each computes from its own shard: relativistic losses,
and normalisations that a script writes out.
"""

from __future__ import annotations

import libcst as cst

from ..dataflow.values import State, Unit
from ..layouts.engine.layout import Unclear, held
from ..layouts.loop_layouts import layouts_of


def compares_with_batch(state: State, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether an operation takes a figure of the whole batch from its rows, or divides them by it. A figure that weighs
    them, or is added to them, is not compared."""
    compares = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, (cst.Subtract, cst.Divide))
    if not compares and not isinstance(node, cst.Call):
        return False
    assert isinstance(node, cst.BaseExpression)
    for layout in held(layouts_of(state).value(unit, node)):
        if isinstance(layout, Unclear) and layout.compared and layout.node is node:
            return True
    return False
