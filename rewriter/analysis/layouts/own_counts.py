"""
Sums over the rows of all processes that a script divides by what one process counts: ``hits / (batch_size * i)``,
``hits / (len(loader) * 32)``, ``sum(hits_of_batches) / len(hits_of_batches)``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import libcst as cst

from ...facts.module import Gather
from ...facts.reasons import Reason
from ...facts.reasons.metrics import MeanOfSums, MeansByRows, SumsByOwnSteps
from ...facts.roles import Role
from ...facts.torch_api.kinds.tensors import Reduce
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import Unit, origins
from ..syntax.definitions import seen_values
from ..syntax.nodes import counter
from ..syntax.walk import descendants, nodes_in
from .batch_figures import kinds_of
from .engine.layout import Each, Partial, Replicated, Shard, ShardRow, ShardSize, inner
from .epoch_quotients import CollectedTotals, division, read_totals
from .epoch_totals import Total, deciding
from .joined import Joined
from .loop_layouts import LoopLayouts, layouts_of

_DEPTH = 3
"""So many variables are followed to what is counted or collected."""
_PLACES = (cst.Name, cst.Attribute, cst.Subscript)


def own_counts(
    reach: Reach,
    unit: Unit,
    shared: Container[cst.CSTNode],
    gathers: Iterable[Gather],
    is_early: Callable[[cst.Call], bool],
) -> Iterator[Reason]:
    """
    The quotients that are N times too large on N processes, in one finding for each divisor.

    Args:
        reach: the call graph of the solved program.
        unit: a module.
        shared: the loops whose loaders are prepared.
        gathers: what makes the figures of the module those of all processes.
        is_early: a call comes before `prepare`, in the same code.
    """
    divided = _divisions(unit)
    for loop in _loops(reach, unit, shared, gathers):
        told: dict[str, tuple[cst.CSTNode, dict[str, None]]] = {}
        for node, over, under in divided:
            names = loop.whole_sums(over) if loop.counts(under, is_early) else []
            if names:
                text = _text(unit, under)
                told.setdefault(text, (node, {}))[1].update(dict.fromkeys(names))
        for divisor, (node, figures) in told.items():
            yield SumsByOwnSteps(node, divisor, tuple(figures))
        for node, total in loop.means_of_sums():
            yield MeanOfSums(node, _text(unit, total.kept_in), _text(unit, node))


def means_by_rows(
    reach: Reach, unit: Unit, shared: Container[cst.CSTNode], gathers: Iterable[Gather]
) -> Iterator[tuple[cst.CSTNode, Reason]]:
    """Means of joined batches that are added up and divided by the rows of all processes, which the loop counts: N
    times too small on N processes. Each with the statement that adds up. Arguments as for `own_counts`."""
    divided = _divisions(unit)
    for loop in _loops(reach, unit, shared, gathers) if divided else ():
        for node, over, under in divided:
            for total in loop.whole_means(over) if loop.counts_all_rows(under) else ():
                place, divisor = _text(unit, total.kept_in), _text(unit, under)
                yield total.node, MeansByRows(node, place, divisor, total.node)


def _divisions(unit: Unit) -> list[tuple[cst.CSTNode, cst.BaseExpression, cst.BaseExpression]]:
    nodes = unit.names.every(cst.BinaryOperation, cst.AugAssign)
    return [(node, *sides) for node in nodes if (sides := division(node))]


def _loops(
    reach: Reach, unit: Unit, shared: Container[cst.CSTNode], gathers: Iterable[Gather]
) -> Iterator[_CountingLoop]:
    made = list(gathers)
    for loop in reach.state.loaders if made else ():
        if loop in shared and isinstance(loop, cst.For) and loop in unit.names.parents:
            yield _CountingLoop(reach, unit, loop, Joined(reach, unit, loop, made))


def _text(unit: Unit, node: cst.BaseExpression) -> str:
    return unit.names.one_line(node.with_changes(lpar=(), rpar=()))


class _CountingLoop:
    """One loop over a shared loader."""

    def __init__(self, reach: Reach, unit: Unit, loop: cst.For, joined: Joined) -> None:
        self.state, self.reach, self.unit, self.loop = reach.state, reach, unit, loop
        self.joined = joined
        self.totals = [total for kept in joined.kept.values() for total in kept]
        self.whole = [total for total in self.totals if self._is_whole(total)]
        self._every, self._of_all = CollectedTotals(self.totals), CollectedTotals(self.whole)
        self._layouts: LoopLayouts | None = None

    @property
    def layouts(self) -> LoopLayouts:
        """Of the loop; most need none."""
        if self._layouts is None:
            self._layouts = layouts_of(self.state).loop(self.unit, self.loop)
        return self._layouts

    def _is_whole(self, total: Total) -> bool:
        """Whether what is added is of the rows of all processes."""
        if self.joined.joins(total.node):
            return True
        parts = (part for by in (*total.value, *deciding(self.unit, self.loop, total)) for part in descendants(by))
        return any(isinstance(part, cst.Name) and self.joined.holds(part) for part in parts)

    def counts(self, divisor: cst.BaseExpression, is_early: Callable[[cst.Call], bool]) -> bool:
        """Whether a divisor is counted by one process alone: by the number of its steps."""
        return bool(self.whole) and self._is_own(divisor, is_early) and not self._read(divisor)

    def counts_all_rows(self, divisor: cst.BaseExpression) -> bool:
        """Whether a divisor is a sum over the rows of all processes, of as much for each row."""
        values = [value for total in self._read(divisor) for value in total.value]
        return bool(values) and all(map(self._counts_rows, values))

    def _counts_rows(self, value: cst.BaseExpression) -> bool:
        """Whether a value is a number of rows: of a batch, too, of which nothing tells whether it is a tensor."""
        if isinstance(inner(self.layouts.value(value)), ShardSize):
            return True
        counted = value.args[0].value if isinstance(value, cst.Call) and method_name(value) == "len" else None
        if not isinstance(counted, cst.Name) or not self.joined.holds(counted):
            return False
        layout = self.layouts.value(counted)
        return isinstance(layout, Each) and layout.element == Shard(0)

    def whole_means(self, over: cst.BaseExpression) -> list[Total]:
        """The sums of means of joined batches that an expression is computed from, with nothing that divides them."""
        if any(division(part) for part in descendants(over)):
            return []
        read = self._read(over)
        return [total for total in read if all(self._is_mean(value) for value in total.value)]

    def _is_mean(self, value: cst.BaseExpression) -> bool:
        layout = inner(self.layouts.value(value))
        return isinstance(layout, Partial) and layout.op == "mean" and not isinstance(value, cst.BinaryOperation)

    def _is_own(self, node: cst.BaseExpression, is_early: Callable[[cst.Call], bool], depth: int = 0) -> bool:
        for part in descendants(node):
            if isinstance(part, cst.Call) and method_name(part) == "len" and len(part.args) == 1:
                held = origins(self.state.values.get(part.args[0].value), Role.LOADER)
                if not is_early(part) and any(o in self.state.loaders.get(self.loop, ()) for o in held):
                    return True
            if not isinstance(part, _PLACES):
                continue
            if any(map(self._is_of_steps, self._every.at(self.unit, part))):
                return True
            binding = self.unit.names.binding(part) if isinstance(part, cst.Name) else None
            if isinstance(part, cst.Name) and binding is not None:
                if counter(self.loop) in binding.definitions:
                    return True
                if depth < _DEPTH and any(
                    self._is_own(v, is_early, depth + 1) for v in seen_values(self.unit.names, part)
                ):
                    return True
        return False

    def _is_of_steps(self, total: Total) -> bool:
        """Whether each step adds the same: ``seen += 32``."""
        if total in self.whole or not isinstance(total.node, (cst.AugAssign, cst.Assign)):
            return False
        return all(isinstance(self.layouts.value(value), Replicated) for value in total.value)

    def whole_sums(self, over: cst.BaseExpression) -> list[str]:
        """What grows with the rows of all processes, of what an expression is computed from; empty for a quotient of
        such sums."""
        inside = [sides for part in descendants(over) if (sides := division(part))]
        if any(self._read(under) for _, under in inside):
            return []
        read = self._read(over)
        code = self.unit.names.module.code_for_node
        return [code(total.kept_in) for total in read if self._grows(total)]

    def _grows(self, total: Total) -> bool:
        layouts = [inner(self.layouts.value(value)) for value in total.value]
        if total.lists:
            return False  # how a list or a meter grows by it is not known
        if any(isinstance(one, ShardSize) or (isinstance(one, Partial) and one.op == "sum") for one in layouts):
            return True
        rows = any(isinstance(inner(self.layouts.value(by)), ShardRow) for by in deciding(self.unit, self.loop, total))
        return rows and all(isinstance(one, (Replicated, ShardRow)) for one in layouts)

    def means_of_sums(self) -> Iterator[tuple[cst.BaseExpression, Total]]:
        """Where a list that has a sum over the rows of each joined batch is averaged over its entries, and is no half
        of a quotient of such lists: ``sum(hits) / len(hits)``, ``np.mean(hits)``."""
        names = self.unit.names
        for total in self.whole:
            binding = names.binding(total.place) if isinstance(total.place, cst.Name) else None
            appended = total.joins or (isinstance(total.node, cst.Call) and method_name(total.node) == "append")
            if binding is None or not appended or not all(map(self._is_sum, total.value)):
                continue
            for mean in dict.fromkeys(m for read in binding.reads if (m := self._mean_over(read)) is not None):
                beside = [side for around in names.ancestors(mean) for side in division(around) or ()]
                if not any(mean not in descendants(side) and self._read(side) for side in beside):
                    yield mean, total
                    break

    def _is_sum(self, value: cst.BaseExpression) -> bool:
        layout = inner(self.layouts.value(value))
        return isinstance(layout, ShardSize) or (isinstance(layout, Partial) and layout.op == "sum")

    def _mean_over(self, read: cst.CSTNode) -> cst.BaseExpression | None:
        """The mean over the entries of a list that is read: divided by ``len`` of it, or by a call that averages."""
        counted = False
        for around in self.unit.names.ancestors(read):
            sides = division(around)
            if isinstance(around, cst.BinaryOperation) and sides is not None and counted:
                over = any(p.deep_equals(read) for p in nodes_in(sides[0], cst.Name))
                return around if over and read in descendants(sides[1]) else None
            if isinstance(around, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
                return None
            if isinstance(around, cst.Call):
                reduced = [k.op for k in kinds_of(self.state, around) if isinstance(k, Reduce)]
                if reduced and not counted:
                    return around if set(reduced) == {"mean"} else None
                counted = counted or (method_name(around) == "len" and [arg.value for arg in around.args] == [read])
        return None

    def _read(self, node: cst.BaseExpression) -> list[Total]:
        """The sums over all processes that an expression is computed from."""
        return read_totals(self.unit, self._of_all, node)
