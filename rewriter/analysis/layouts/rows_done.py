"""How far a training loop says it is: the number of its step times the rows of its batch, of one process alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.module import Count
from ..dataflow.values import State, Unit
from ..syntax.nodes import counter
from ..syntax.walk import descendants
from ..training.training import Training
from .engine.layout import ShardSize
from .loop_layouts import LoopLayouts, layouts_of


def rows_done(state: State, unit: Unit, training: Training, loops: Iterable[cst.CSTNode]) -> Iterator[Count]:
    """``(step + 1) * len(x)`` in some loops over shared loaders that train."""
    for loop in loops:
        number = counter(loop) if isinstance(loop, cst.For) and loop in training.train_loops else None
        binding = unit.names.binding(number) if isinstance(number, cst.Name) and loop in unit.names.parents else None
        if binding is None or not isinstance(loop, cst.For):
            continue
        layouts: LoopLayouts | None = None
        reads = set(binding.reads)
        for node in descendants(loop.body):
            if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Multiply):
                continue
            for steps, rows in ((node.left, node.right), (node.right, node.left)):
                if reads.isdisjoint(descendants(steps)) or not reads.isdisjoint(descendants(rows)):
                    continue
                layouts = layouts or layouts_of(state).loop(unit, loop)
                if isinstance(layouts.value(rows), ShardSize):
                    yield Count(node, "rows-done", " ".join(unit.names.module.code_for_node(node).split()))
