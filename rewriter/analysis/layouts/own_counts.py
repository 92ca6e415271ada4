"""
Sums over the rows of all processes that a script divides by what one process counts: ``hits / (batch_size * i)``,
``hits / (len(loader) * 32)``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import libcst as cst

from ...facts.module import Gather
from ...facts.roles import Role
from ...findings import Finding
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import Unit, origins
from ..syntax.definitions import seen_values
from ..syntax.nodes import counter
from ..syntax.walk import descendants
from .engine.layout import Partial, Replicated, ShardRow, ShardSize, inner
from .epoch_quotients import division, is_place, read_totals
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
) -> Iterator[Finding]:
    """
    The quotients that are N times too large on N processes, in one finding for each divisor.

    Args:
        reach: the call graph of the solved program.
        unit: a module.
        shared: the loops whose loaders are prepared.
        gathers: what makes the figures of the module those of all processes.
        is_early: a call comes before `prepare`, in the same code.
    """
    made = list(gathers)
    divided = [
        (node, *sides) for node in unit.names.every(cst.BinaryOperation, cst.AugAssign) if (sides := division(node))
    ]
    for loop in reach.state.loaders if divided and made else ():
        if loop in shared and isinstance(loop, cst.For) and loop in unit.names.parents:
            loop_ = _CountingLoop(reach, unit, loop, Joined(reach.state, unit, loop, made), is_early)
            told: dict[str, tuple[cst.CSTNode, dict[str, None]]] = {}
            for node, over, under in divided:
                names = loop_.whole_sums(over) if loop_.counts(under) else []
                if names:
                    bare = under.with_changes(lpar=(), rpar=())
                    text = " ".join(unit.names.module.code_for_node(bare).split())
                    told.setdefault(text, (node, {}))[1].update(dict.fromkeys(names))
            for divisor, (node, figures) in told.items():
                yield _finding(node, divisor, list(figures))


class _CountingLoop:
    """One loop over a shared loader."""

    def __init__(
        self, reach: Reach, unit: Unit, loop: cst.For, joined: Joined, is_early: Callable[[cst.Call], bool]
    ) -> None:
        self.state, self.reach, self.unit, self.loop = reach.state, reach, unit, loop
        self.joined, self.is_early = joined, is_early
        self.totals = [total for kept in joined.kept.values() for total in kept]
        self.whole = [total for total in self.totals if self._is_whole(total)]
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

    def counts(self, divisor: cst.BaseExpression) -> bool:
        """Whether a divisor is counted by one process alone: by the number of its steps."""
        return bool(self.whole) and self._is_own(divisor) and not self._read(divisor)

    def _is_own(self, node: cst.BaseExpression, depth: int = 0) -> bool:
        for part in descendants(node):
            if isinstance(part, cst.Call) and method_name(part) == "len" and len(part.args) == 1:
                held = origins(self.state.values.get(part.args[0].value), Role.LOADER)
                if not self.is_early(part) and any(o in self.state.loaders.get(self.loop, ()) for o in held):
                    return True
            if not isinstance(part, _PLACES):
                continue
            if any(is_place(self.unit, total, part) and self._is_of_steps(total) for total in self.totals):
                return True
            binding = self.unit.names.binding(part) if isinstance(part, cst.Name) else None
            if isinstance(part, cst.Name) and binding is not None:
                if counter(self.loop) in binding.definitions:
                    return True
                if depth < _DEPTH and any(self._is_own(v, depth + 1) for v in seen_values(self.unit.names, part)):
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
        if isinstance(total.node, cst.Call):
            return False  # how a list or a meter grows by it is not known
        if any(isinstance(one, ShardSize) or (isinstance(one, Partial) and one.op == "sum") for one in layouts):
            return True
        rows = any(isinstance(inner(self.layouts.value(by)), ShardRow) for by in deciding(self.unit, self.loop, total))
        return rows and all(isinstance(one, (Replicated, ShardRow)) for one in layouts)

    def _read(self, node: cst.BaseExpression) -> list[Total]:
        """The sums over all processes that an expression is computed from."""
        return read_totals(self.unit, self.whole, node)


def _finding(node: cst.CSTNode, divisor: str, figures: list[str]) -> Finding:
    names = " and ".join(f"`{figure}`" for figure in figures)
    adds = "adds up" if len(figures) == 1 else "add up"
    return Finding(
        "mean-of-batches",
        node,
        f"{names} {adds} what the rows of all processes give, and `{divisor}` counts the steps of one process alone: "
        "on N processes the result is N times larger",
        "divide by accelerator.num_processes too, or keep the global batch: --keep-global-batch",
    )
