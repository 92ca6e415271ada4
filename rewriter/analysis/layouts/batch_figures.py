"""Figures of a batch that its rows make together: they are not those of several batches that are joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...findings import Finding, Severity
from ..dataflow.values import State, Unit
from ..syntax.definitions import bindings_value
from ..syntax.walk import descendants
from .engine.layout import NORMALISED, Partial, Shard, ShardRow, Unclear, inner, varies
from .epoch_totals import collecting
from .loop_layouts import LoopLayouts

_DEPTH = 3
"""So many variables are followed to a ratio."""


def joint_figure(layouts: LoopLayouts, figures: Iterable[cst.BaseExpression]) -> cst.BaseExpression | None:
    """
    The first of some expressions in an evaluation loop that is a figure of one batch: a PSNR, an F1, the best row.

    ``figures``: what the loop collects, and what decides whether it does.
    """
    for figure in figures:
        layout = inner(layouts.value(figure))
        if isinstance(layout, Unclear) and layout.joint:
            return figure
        if isinstance(layout, Partial) and layout.host and layout.uneven == NORMALISED:
            return figure
    return None


def ratios(state: State, unit: Unit, loop: cst.For, layouts: LoopLayouts) -> Iterator[Finding]:
    """Ratios of each batch, divided by hand, that an evaluation loop collects to average them: ``hits / len(y)``."""
    told: set[str] = set()
    inside = set(descendants(loop))
    for total in collecting(state, unit, descendants(loop.body)):
        name = unit.names.module.code_for_node(total.kept_in)
        found = (ratio for value in total.value if (ratio := _ratio(unit, inside, layouts, value)) is not None)
        ratio = next(found, None)
        if ratio is not None and name not in told:
            told.add(name)
            text = " ".join(unit.names.module.code_for_node(ratio).split())
            yield Finding(
                "mean-of-batches",
                total.node,
                f"`{name}` collects `{text}` of each batch, and on N processes a batch has the rows of N of the "
                "script's: a mean over batches weighs the rows of a smaller batch, or those that are chosen of one, "
                "differently, and is close to the original's but not equal to it",
                "no action needed if close is good enough; for the same figure on any number of processes, add up both "
                "halves of the ratio and divide once, after the loop",
                Severity.REVIEW,
            )


def _ratio(
    unit: Unit, inside: set[cst.CSTNode], layouts: LoopLayouts, value: cst.BaseExpression, depth: int = 0
) -> cst.BinaryOperation | None:
    """The division of one figure of a batch by another from which a value is computed, if that is no sum of rows."""
    layout = inner(layouts.value(value))
    if depth > _DEPTH or (isinstance(layout, Partial) and layout.op == "sum"):
        return None
    for part in descendants(value):
        if isinstance(part, cst.BinaryOperation) and isinstance(part.operator, cst.Divide):
            sides = [inner(layouts.value(side)) for side in (part.left, part.right)]
            if all(varies(side) and not isinstance(side, (Shard, ShardRow)) for side in sides):
                return part
        binding = unit.names.binding(part) if isinstance(part, cst.Name) else None
        here = [d for d in binding.definitions if d in inside] if binding is not None else []
        for made in bindings_value(unit.names, binding, here) if binding is not None else ():
            ratio = _ratio(unit, inside, layouts, made, depth + 1)
            if ratio is not None:
                return ratio
    return None
