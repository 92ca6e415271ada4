"""Quotients of what a training loop collects: ``sum(losses) / sum(counts)``, ``hits / len(data)``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.roles import Origin, Role
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value, seen_values
from ..syntax.walk import descendants
from .epoch_totals import Total

_DEPTH = 3
"""So many variables are followed to what is collected."""


class Quotient(NamedTuple):
    """A division of what was collected."""

    node: cst.CSTNode
    over: list[Total]
    under: list[Total]
    by_rows: bool
    """It is divided by the length of something that is no loader: by the number of all rows."""


class Quotients:
    """Those of the totals of one loop."""

    def __init__(self, state: State, unit: Unit, loaders: Iterable[Origin], totals: list[Total]) -> None:
        self.state, self.unit, self.totals = state, unit, totals
        self.data = datasets(loaders)
        self.found = list(self._all()) if totals else []

    def beside(self, total: Total) -> Iterator[Total]:
        """The totals that one is divided by, or that are divided by it."""
        for quotient in self.found:
            if total in quotient.over:
                yield from quotient.under
            if total in quotient.under:
                yield from quotient.over

    def told(self, total: Total) -> str:
        """What is to be said of the figure that a total of one process's own rows goes into; empty for nothing."""
        quotient = next((q for q in self.found if total in q.over or total in q.under), None)
        if quotient is None:
            return ""
        text = " ".join(self.unit.names.module.code_for_node(quotient.node).split())
        if quotient.by_rows and not quotient.under:
            return f": `{text}` divides it by the number of all rows, so on N processes it is N times too small"
        return f": `{text}` is the figure of its own rows, not of all"

    def by_all_rows(self, total: Total) -> str:
        """The quotient of a total and the number of all rows; empty where there is none."""
        found = (q.node for q in self.found if total in q.over and q.by_rows)
        return next((" ".join(self.unit.names.module.code_for_node(node).split()) for node in found), "")

    def _all(self) -> Iterator[Quotient]:
        for node in self.unit.names.every(cst.BinaryOperation, cst.AugAssign):
            halves = division(node)
            if halves is None:
                continue
            above, below = (read_totals(self.unit, self.totals, half) for half in halves)
            by_rows = self._is_number_of_rows(halves[1])
            if above and (below or by_rows):
                yield Quotient(node, above, below, by_rows)

    def _is_number_of_rows(self, divisor: cst.BaseExpression) -> bool:
        """``len(data)``, ``len(loader.dataset)``, and a variable that holds it."""
        values = seen_values(self.unit.names, divisor) if isinstance(divisor, cst.Name) else [divisor]
        return bool(values) and all(counts_rows(self.state, value, self.data) for value in values)


def division(node: cst.CSTNode) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The two halves of ``a / b`` and of ``a /= b``; None for anything else."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
        return node.left, node.right
    if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.DivideAssign):
        return node.target, node.value
    return None


def read_totals(unit: Unit, totals: Iterable[Total], node: cst.BaseExpression, depth: int = 0) -> list[Total]:
    """The totals that an expression is computed from."""
    among, found = list(totals), dict[Total, None]()
    for part in descendants(node):
        if isinstance(part, (cst.Name, cst.Attribute, cst.Subscript)):
            here = [total for total in among if is_place(unit, total, part)]
            found.update(dict.fromkeys(here))
            binding = unit.names.binding(part) if isinstance(part, cst.Name) and not here else None
            for value in bindings_value(unit.names, binding) if binding and depth < _DEPTH else ():
                if not any(total.node is value or value in total.value for total in among):
                    found.update(dict.fromkeys(read_totals(unit, among, value, depth + 1)))
    return list(found)


def is_place(unit: Unit, total: Total, read: cst.BaseExpression) -> bool:
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


def counts_rows(state: State, value: cst.BaseExpression, data: Iterable[cst.BaseExpression]) -> bool:
    """``len(data)`` of a data set, or of what a loader was given as one."""
    if not isinstance(value, cst.Call) or method_name(value) != "len" or len(value.args) != 1:
        return False
    counted = value.args[0].value
    known = bool(origins(state.values.get(counted), Role.DATASET))
    return known or any(counted.deep_equals(one) for one in data)
