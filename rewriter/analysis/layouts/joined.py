"""What a loop over batches has of all processes, once its rows are gathered or its figures are reduced."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ...facts.module import Form, Gather, Side
from ..dataflow.values import State, Unit
from ..syntax.definitions import bindings_value
from ..syntax.scopes import Binding
from ..syntax.walk import descendants
from .epoch_totals import Total, collecting


class Joined:
    """
    What is computed from what a loop gathers or reduces.

    Args:
        state: the solved program.
        unit: the module of the loop.
        loop: over batches.
        gathers: of the module.
    """

    def __init__(self, state: State, unit: Unit, loop: cst.CSTNode, gathers: Iterable[Gather]) -> None:
        self.unit = unit
        inside = set(descendants(loop))
        self._whole = set[cst.CSTNode]()
        self._names: dict[str, list[int]] = {}
        """The names that the loop gathers, and from where on they hold the rows of all."""
        for gather in gathers:
            self._whole.update((gather.node, *gather.inline, *(name for name, _ in gather.counts)))
            if gather.node in inside and gather.form is Form.GATHER:
                before = gather.side is Side.BEFORE
                place = unit.names.order(gather.node) - 1 if before else unit.names.end(gather.node)
                for name in gather.set_anew:
                    self._names.setdefault(name, []).append(place)
        self.kept: dict[Binding, list[Total]] = {}
        """What the loop collects, by the variables that hold it."""
        for total in collecting(state, unit, descendants(loop)):
            root = root_of(total.place)
            binding = unit.names.binding(root) if root is not None else None
            if binding is not None:
                self.kept.setdefault(binding, []).append(total)

    def joins(self, node: cst.CSTNode) -> bool:
        """Whether something below a node is gathered or reduced in place."""
        return not self._whole.isdisjoint(descendants(node))

    def holds(self, name: cst.Name) -> bool:
        """Whether a figure is made of what the loop gathers, or reduces, in some steps."""
        pending, seen = [name], set[Binding]()
        while pending:
            read = pending.pop()
            if read in self._whole or any(at < self.unit.names.order(read) for at in self._names.get(read.value, ())):
                return True
            binding = self.unit.names.binding(read)
            if binding is not None and binding not in seen:
                seen.add(binding)
                collected = [total for total in self.kept.get(binding, ()) if read not in set(descendants(total.node))]
                if any(self.joins(total.node) for total in collected):
                    return True
                values = [*bindings_value(self.unit.names, binding), *(v for t in collected for v in t.value)]
                pending += [n for value in values for n in descendants(value) if isinstance(n, cst.Name)]
        return False


def root_of(place: cst.CSTNode) -> cst.Name | None:
    """The variable at the front of an attribute or an entry."""
    while isinstance(place, (cst.Attribute, cst.Subscript)):
        place = place.value
    return place if isinstance(place, cst.Name) else None
