"""How far a training loop says it is: the number of its step times the rows of its batch, of one process alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.module import Count
from ...facts.roles import Origin
from ..dataflow.values import State, Unit
from ..syntax.nodes import dotted, keyword
from ..syntax.walk import descendants, nodes_in
from ..training.training import Training
from .batch_numbers import counters
from .engine.layout import ShardSize
from .loop_layouts import LoopLayouts, layouts_of


def rows_done(
    state: State, unit: Unit, training: Training, loops: Iterable[cst.CSTNode], kept: bool
) -> Iterator[Count]:
    """
    ``(step + 1) * len(x)`` and ``step * batch_size + len(x)`` in some loops over shared loaders that train, and
    ``seen += batch_size``. What the rows of the last batch are added to is a number of rows, whatever it is called.

    Args:
        state, unit, training: the solved program, a module, what the program trains.
        loops: the loops.
        kept: the global batch is kept: the size that the script gives a loader is that of all processes together.
    """
    for loop in loops:
        sizes = frozenset(_sizes(state.loaders.get(loop, ())) if not kept else ())
        if loop in training.train_loops and loop in unit.names.parents:
            yield from _added(unit, loop, sizes)
        if loop not in training.train_loops or loop not in unit.names.parents or not isinstance(loop, cst.For):
            continue
        layouts: LoopLayouts | None = None
        reads = {read for binding in counters(unit, loop) for read in binding.reads}
        for node in nodes_in(loop.body, cst.BinaryOperation):
            if not isinstance(node.operator, cst.Multiply):
                continue
            for steps, rows in ((node.left, node.right), (node.right, node.left)):
                if reads.isdisjoint(descendants(steps)) or not reads.isdisjoint(descendants(rows)):
                    continue
                layouts = layouts or layouts_of(state).loop(unit, loop)
                whole = _with_last(unit, layouts, node)
                if (
                    isinstance(layouts.value(rows), ShardSize)
                    or dotted(rows) in sizes
                    or (whole is not node and not kept)
                ):
                    yield Count(whole, "rows-done", unit.names.one_line(whole))


def _added(unit: Unit, loop: cst.CSTNode, sizes: frozenset[str]) -> Iterator[Count]:
    """Where a loop counts its rows by the size of its batches, to show the number: what it divides by is no such."""
    for node in nodes_in(loop, cst.AugAssign):
        binding = unit.names.binding(node.target) if isinstance(node.target, cst.Name) else None
        if binding is None or not isinstance(node.operator, cst.AddAssign) or dotted(node.value) not in sizes:
            continue
        shown = [read for read in binding.reads if read is not node.target]
        around = [unit.names.parents.get(read) for read in shown]
        if shown and not any(isinstance(a, cst.BinaryOperation) and isinstance(a.operator, cst.Divide) for a in around):
            yield Count(node, "rows-done", unit.names.one_line(node))


def _sizes(loaders: Iterable[Origin]) -> Iterator[str]:
    """What the script calls the batch size that it gives to some loaders."""
    for loader in loaders:
        size = keyword(loader.node, "batch_size", 1) if isinstance(loader.node, cst.Call) else None
        if size is not None and dotted(size):
            yield dotted(size)


def _with_last(unit: Unit, layouts: LoopLayouts, node: cst.BinaryOperation) -> cst.BinaryOperation:
    """The rows of the steps before with those of this one, where these are added: ``step * size + len(x)``."""
    above = unit.names.parents.get(node)
    if isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.Add):
        if isinstance(layouts.value(above.right if above.left is node else above.left), ShardSize):
            return above
    return node
