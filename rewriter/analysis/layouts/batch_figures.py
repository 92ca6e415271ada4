"""Figures of a batch that its rows make together: they are not those of several batches that are joined."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ..dataflow.call_graph import Reach
from ..dataflow.values import State, Unit
from ..syntax.nodes import counter
from .engine.interpreter import Interpreter
from .engine.layout import Each, Layout, Shard, Unclear
from .engine.memory import Seeds


def joint_figure(
    state: State, reach: Reach, unit: Unit, loop: cst.For, figures: Iterable[cst.BaseExpression]
) -> cst.BaseExpression | None:
    """
    The first of some expressions in an evaluation loop that is a figure of one batch: a PSNR, the best of its rows.

    ``figures``: what the loop collects, and what decides whether it does. The rows of the loop's batches are cut into
    shards; a model is taken to give rows for rows.
    """
    held = Interpreter(state, reach, Seeds(_rows(loop), models=True))
    held.turns(loop, unit)
    for figure in figures:
        layout = held.value(figure, unit)
        if isinstance(layout, Unclear) and layout.joint:
            return figure
    return None


def _rows(loop: cst.For) -> dict[cst.CSTNode, Layout]:
    """The variables of a batch: each a tensor of rows; one alone may hold several of them."""
    number = counter(loop)
    pending: list[cst.CSTNode] = [loop.target]
    names: list[cst.Name] = []
    while pending:
        node = pending.pop()
        if isinstance(node, cst.Name) and node is not number:
            names.append(node)
        elif isinstance(node, (cst.Tuple, cst.List)):
            pending.extend(element.value for element in node.elements)
    return {name: Each(Shard(0)) if len(names) == 1 else Shard(0) for name in names}
