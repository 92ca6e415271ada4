"""
The best of all batches: ``if loss < best: best = loss``, ``worst = max(worst, loss.item())``.

A figure of each batch is compared with that of the batches before. On N processes the rows of N batches are one batch,
whose mean is not the lowest of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..dataflow.callees import method_name
from ..dataflow.values import Unit
from ..syntax.scopes import Binding
from ..syntax.walk import nodes_in
from .engine.layout import Partial, Unclear, inner
from .loop_layouts import LoopLayouts


def best_of_batches(unit: Unit, loop: cst.For, layouts: LoopLayouts) -> cst.BaseExpression | None:
    """The figure of one batch that a loop compares with the best one so far, if it has one."""
    for value in _compared(unit, loop):
        layout = inner(layouts.value(value))
        if isinstance(layout, Partial) or (isinstance(layout, Unclear) and layout.joint):
            return value
    return None


def _compared(unit: Unit, loop: cst.For) -> Iterator[cst.BaseExpression]:
    """What a loop compares with a variable that is older than it, and that it may give the same."""
    for assign in nodes_in(loop.body, cst.Assign):
        targets = [target.target for target in assign.targets]
        bindings = [unit.names.binding(target) for target in targets if isinstance(target, cst.Name)]
        kept = [b for b in bindings if b is not None and any(_is_before(unit, d, loop) for d in b.definitions)]
        if not kept:
            continue
        call = assign.value
        if isinstance(call, cst.Call) and method_name(call) in ("min", "max") and len(call.args) > 1:
            others = _others(unit, [arg.value for arg in call.args], kept)
            yield from (value for value in others if not _chooses_rows(value, method_name(call)))
        for around in unit.names.enclosing(assign, cst.If, cst.For):
            if around is loop:
                break
            for test in nodes_in(around.test, cst.Comparison) if isinstance(around, cst.If) else ():
                yield from _others(unit, [test.left, *(each.comparator for each in test.comparisons)], kept)


def _chooses_rows(value: cst.BaseExpression, chosen: str) -> bool:
    """``max(best, out.max().item())``: the largest of all rows, whatever batches they are in."""
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value in (chosen, f"a{chosen}"):
            return not value.args
        value = value.func.value
    return False


def _is_before(unit: Unit, definition: cst.CSTNode, loop: cst.For) -> bool:
    names = unit.names
    return definition in names.parents and names.order(definition) < names.order(loop)


def _others(unit: Unit, sides: list[cst.BaseExpression], kept: list[Binding]) -> list[cst.BaseExpression]:
    """The sides of a comparison that do not read what is kept, where one of them does."""
    reading = [side for side in sides if any(unit.names.binding(name) in kept for name in nodes_in(side, cst.Name))]
    return [side for side in sides if side not in reading] if reading else []
