"""What ``--roles`` tells of the values of loops over batches: what each process holds of them, and why."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.module import COUNT, JOINT, MEAN, MIXED, REPLICATED, ROW, SEVERAL, SHARD, SUM, UNKNOWN, WHOLE, Behaviour
from ..dataflow.values import State, Unit
from ..layouts.engine.layout import (
    Layout,
    Mixed,
    Partial,
    Shard,
    ShardRow,
    ShardSize,
    Unclear,
    Whole,
    is_container,
    parts,
    varies,
)
from ..layouts.loop_layouts import LoopLayouts, layouts_of
from ..syntax.walk import descendants, nodes_in
from ..training.training import Training


def value_layouts(state: State, unit: Unit, training: Training) -> Iterator[Behaviour]:
    """The layout of each variable that a training or an evaluation loop of a module sets."""
    for loop in (*training.train_loops, *training.eval_loops):
        if loop in unit.names.parents and isinstance(loop, (cst.For, cst.While)):
            layouts = layouts_of(state).loop(unit, loop)
            told = _Told(unit, loop, layouts)
            for name, layout in layouts.set_in(loop):
                yield told.of(name, layout)


class _Told:
    """What each process holds of the values of one loop, and why."""

    def __init__(self, unit: Unit, loop: cst.For | cst.While, layouts: LoopLayouts) -> None:
        self.unit, self.layouts = unit, layouts
        self.source = self._text(loop.iter) if isinstance(loop, cst.For) else "the batch"
        self.target = set(descendants(loop.target)) if isinstance(loop, cst.For) else set()
        self.scope = unit.names.scopes[unit.names.function(loop)].qualname

    def of(self, name: cst.Name, layout: Layout) -> Behaviour:
        """One variable, where it is set."""
        kind, because = self._words(name, layout)
        return Behaviour(name, name.value, self.scope, kind, because)

    def _words(self, name: cst.Name, layout: Layout) -> tuple[str, str]:
        if is_container(layout):
            words = dict.fromkeys(self._words(name, part)[0] for part in parts(layout))
            only = next(iter(words)) if len(words) == 1 else ""
            if only == REPLICATED:
                return REPLICATED, self._same(name)
            return (SHARD if only == SHARD else SEVERAL), f"a container; what is in it: {', '.join(words)}"
        if isinstance(layout, Shard):
            return SHARD, self._rows(name, layout)
        if isinstance(layout, ShardRow):
            return ROW, "one row of this process after another"
        if isinstance(layout, ShardSize):
            return COUNT, "how many rows this process has"
        if isinstance(layout, Partial):
            uneven = f"; each process {layout.uneven}" if layout.uneven else ""
            return layout.op, f"the {layout.op} over the rows of this process{uneven}"
        if isinstance(layout, Mixed):
            one, other = self._words(name, layout.one)[0], self._words(name, layout.other)[0]
            return MIXED, f"{one} on one path, {other} on another"
        if isinstance(layout, Unclear) and layout.counts:
            return COUNT, f"{layout.reason}: `{self._text(layout.node)}`"
        if isinstance(layout, Unclear):
            near = f"; taken for a {layout.near}" if layout.near in (MEAN, SUM) else ""
            return (JOINT if layout.joint else UNKNOWN), f"{layout.reason}: `{self._text(layout.node)}`{near}"
        if isinstance(layout, Whole):
            return WHOLE, "made for all rows of the batch, on every process"
        return REPLICATED, self._same(name)

    def _rows(self, name: cst.Name, layout: Shard) -> str:
        along = f" along dimension {layout.dim}" if layout.dim else ""
        chosen = ", some of them, chosen by what is in them" if layout.chosen else ""
        if name in self.target:
            return f"this process's rows of {self.source}{along}"
        read = self._read(name)
        made = f", computed from {', '.join(f'`{text}`' for text in read)}" if read else ""
        assumed = "; a model is taken to give rows for rows" if layout.assumed else ""
        return f"this process's rows{along}{chosen}{made}{assumed}"

    def _same(self, name: cst.Name) -> str:
        return "the number of the batch" if name in self.target else "no row of the batch goes into it"

    def _read(self, name: cst.Name) -> list[str]:
        """The variables with rows that the statement reads which sets a name."""
        statement = self.unit.names.statement(name)
        names = (node for node in nodes_in(statement, cst.Name) if node is not name)
        read = (node for node in names if (binding := self.unit.names.binding(node)) and node in binding.reads)
        return list(dict.fromkeys(node.value for node in read if varies(self.layouts.value(node))))

    def _text(self, node: cst.CSTNode) -> str:
        unit = self.layouts.unit_of(node)
        return unit.names.one_line(node)
