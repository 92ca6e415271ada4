"""Quotients of what a training loop collects: ``sum(losses) / sum(counts)``, ``hits / len(data)``."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.reasons.metrics import OwnQuotient
from ...facts.roles import Origin, Role
from ...facts.torch_api import tensor_parts
from ..dataflow.call_graph import Reach
from ..dataflow.trails import Trail, counts_rows_of, traces
from ..dataflow.values import State, Unit, Unknown, origins
from ..syntax.definitions import seen_values, setter
from ..syntax.nodes import dotted
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from .epoch_totals import Total


class Quotient(NamedTuple):
    """A division of what was collected."""

    node: cst.CSTNode
    over: list[Total]
    under: list[Total]
    by_rows: bool
    """It is divided by the length of something that is no loader: by the number of all rows."""

    @property
    def totals(self) -> list[Total]:
        """What was collected, of both halves."""
        return [*self.over, *self.under]


class Quotients:
    """Those of the totals of one loop."""

    def __init__(self, reach: Reach, unit: Unit, loaders: Iterable[Origin], totals: list[Total]) -> None:
        self.unit, self.totals = unit, CollectedTotals(totals)
        self.rows = RowTotals(reach.state, datasets(loaders))
        self.found = list(self._all()) if totals else []
        self._preferred: list[Quotient] = []

    def prefer(self, totals: Container[Total]) -> None:
        """Speak first, and together, of the quotients of which all that is collected is among some totals."""
        self._preferred = [q for q in self.found if all(t in totals for t in q.totals)]
        self.found = [*self._preferred, *(q for q in self.found if q not in self._preferred)]

    def beside(self, total: Total) -> Iterator[Total]:
        """The totals that one is divided by, or that are divided by it."""
        for quotient in self.found:
            if total in quotient.over:
                yield from quotient.under
            if total in quotient.under:
                yield from quotient.over

    def halves(self, total: Total) -> list[Total]:
        """What is to be added up over the processes before a total goes into a quotient; empty where it goes into none,
        or is divided by what is no sum over rows."""
        quotient = next((q for q in self.found if total in q.totals), None)
        if quotient is None or not (quotient.under or quotient.by_rows):
            return []
        found = list(dict.fromkeys(quotient.totals))
        for half in found:
            beside = (t for q in self._preferred if half in q.totals for t in q.totals)
            found += dict.fromkeys(t for t in beside if t not in found)
        return found

    def own(self, total: Total) -> OwnQuotient | None:
        """The figure that a total of one process's own rows goes into."""
        found = next((q for q in self.found if total in q.totals), None)
        if found is None:
            return None
        return OwnQuotient(self.unit.names.one_line(found.node), found.by_rows and not found.under)

    def by_all_rows(self, total: Total) -> str:
        """The quotient of a total and the number of all rows; empty where there is none."""
        found = (q.node for q in self.found if total in q.over and q.by_rows)
        return next((self.unit.names.one_line(node) for node in found), "")

    def _all(self) -> Iterator[Quotient]:
        for node in self.unit.names.every(cst.BinaryOperation, cst.AugAssign):
            halves = division(node)
            if halves is None:
                continue
            above, below = (read_totals(self.unit, self.totals, half) for half in halves)
            by_rows = self.rows.counts(halves[1])
            if above and (below or by_rows):
                yield Quotient(node, above, below, by_rows)


def division(node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The two halves of ``a / b`` and of ``a /= b``; None for anything else."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
        return node.left, node.right
    if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.DivideAssign):
        return node.target, node.value
    return None


class CollectedTotals:
    """Some totals, found again by where they are kept."""

    def __init__(self, totals: Iterable[Total]) -> None:
        self.made: set[cst.CSTNode] = set()
        """The statements that collect, and what they add."""
        self._kept: dict[str, list[Total]] = {}
        for total in totals:
            self._kept.setdefault(_last_word(total.kept_in), []).append(total)
            self.made.update((total.node, *total.value))

    def at(self, unit: Unit, read: cst.BaseExpression) -> list[Total]:
        """Those whose place is read."""
        return [total for total in self._kept.get(_last_word(read), ()) if _is_place(unit, total, read)]


def _last_word(place: cst.BaseExpression) -> str:
    """What places that are spelled alike have in common."""
    while isinstance(place, cst.Subscript):
        place = place.value
    name = place.attr if isinstance(place, cst.Attribute) else place
    return name.value if isinstance(name, cst.Name) else ""


def read_totals(unit: Unit, totals: CollectedTotals, node: cst.BaseExpression) -> list[Total]:
    """The totals that an expression is computed from, by whatever variables; not by how many entries an array of them
    has: ``total.size``."""
    found = dict[Total, None]()
    pending = deque([node])
    seen = {node, *totals.made}
    while pending:
        for part in nodes_in(pending.popleft(), cst.Name, cst.Attribute, cst.Subscript):
            if is_shape(unit.names.parents.get(part)):
                continue
            here = totals.at(unit, part)
            found.update(dict.fromkeys(here))
            for value in seen_values(unit.names, part) if isinstance(part, cst.Name) and not here else ():
                if value not in seen:
                    seen.add(value)
                    pending.append(value)
    return list(found)


def is_shape(node: cst.CSTNode | None) -> bool:
    """``total.size``: how many entries an array or a tensor has, and not what they are."""
    return isinstance(node, cst.Attribute) and tensor_parts.asks_how(node.attr.value)


def _is_place(unit: Unit, total: Total, read: cst.BaseExpression) -> bool:
    """Whether a read is of the place of a total."""
    place = total.kept_in
    if not place.deep_equals(read):
        return False
    if isinstance(place, cst.Name) and isinstance(read, cst.Name):
        return unit.names.binding(place) is unit.names.binding(read)
    return True


def datasets(loaders: Iterable[Origin]) -> list[cst.BaseExpression]:
    """What the constructors of loaders are given as the data set."""
    return [o.node.args[0].value for o in loaders if isinstance(o.node, cst.Call) and o.node.args]


_OF_TENSORS = "torch.utils.data.TensorDataset"


class RowTotals:
    """
    Which expressions give the number of all rows of a data set, however it comes to them.

    Args:
        state: the solved program.
        data: what loaders are given as data sets, to be known again where it is spelled alike.
    """

    def __init__(self, state: State, data: Iterable[cst.BaseExpression]) -> None:
        self._state, self._data = state, list(data)
        self._parts = dict.fromkeys(part for one in self._data for part in self._made_of(one))

    def counts(self, node: cst.BaseExpression) -> bool:
        """``len(data)``, ``len(loader.dataset)``, ``len(loader.sampler)``, and whatever holds it; ``len(x)`` and
        ``x.shape[0]`` of what a data set is made of."""
        lengths = [trace.node for trace in traces(self._state.values.get(node), Trail.LENGTH)]
        return bool(lengths) and all(map(self._is_of_data, lengths))

    def divided(self, node: cst.BaseExpression) -> bool:
        """Whether a number is computed from a part of the number of all rows: ``int(len(data) / size) + 1``."""
        for part in descendants(node):
            halves = isinstance(part, cst.BinaryOperation) and isinstance(part.operator, (cst.Divide, cst.FloorDivide))
            if isinstance(part, cst.BinaryOperation) and halves and self.counts(part.left):
                return True
        return False

    def _is_of_data(self, length: cst.CSTNode) -> bool:
        counted = counts_rows_of(length)
        if counted is None and isinstance(length, cst.Call):
            counted = length.args[0].value
        return counted is not None and (self._is_data(counted) or self._is_part(counted))

    def _made_of(self, data: cst.BaseExpression) -> Iterator[Binding | str]:
        """What has as many rows as a data set: the tensors of a ``TensorDataset``, by variable or by spelling."""
        slot = self._state.values.get(data)
        for made in slot.things if slot is not None else ():
            if isinstance(made, Unknown) and isinstance(made.node, cst.Call) and made.qualified == _OF_TENSORS:
                yield from (part for arg in made.node.args if (part := self._variable(arg.value)) is not None)

    def _is_part(self, counted: cst.BaseExpression) -> bool:
        return bool(self._parts) and self._variable(counted) in self._parts

    def _variable(self, node: cst.BaseExpression) -> Binding | str | None:
        """What a name is of, in whatever module; nothing for one that a loop gives its values."""
        unit = next((unit for unit in self._state.units.values() if node in unit.names.parents), None)
        binding = unit.names.binding(node) if unit is not None and isinstance(node, cst.Name) else None
        if unit is None or binding is None:
            return dotted(node) if isinstance(node, cst.Attribute) else None
        given = any(isinstance(setter(unit.names, d), cst.For) for d in binding.definitions)
        return None if given else binding

    def _is_data(self, counted: cst.BaseExpression) -> bool:
        if origins(self._state.values.get(counted), Role.DATASET) or any(counted.deep_equals(d) for d in self._data):
            return True
        of_loader = isinstance(counted, cst.Attribute) and counted.attr.value in ("dataset", "sampler")
        holder = counted.value if isinstance(counted, cst.Attribute) and of_loader else None
        return bool(origins(self._state.values.get(holder), Role.LOADER)) if holder is not None else False
