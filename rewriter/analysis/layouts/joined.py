"""What a loop over batches has of all processes, once its rows are gathered or its figures are reduced."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ...facts.accelerator import Side
from ...facts.module import Form, Gather
from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.values import Instance, State, Unit, origins
from ..syntax.definitions import bindings_value
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from .epoch_totals import Total, collecting

_JOINING = frozenset({"gather_for_metrics", "gather", "reduce"})


def by_script(state: State, nodes: Iterable[cst.CSTNode]) -> bool:
    """Whether the script itself gathers or reduces, with its accelerator, in one of some nodes."""
    return any(
        node.attr.value in _JOINING and bool(origins(state.values.get(node.value), Role.ACCELERATOR))
        for node in nodes
        if isinstance(node, cst.Attribute)
    )


class Joined:
    """
    What is computed from what a loop gathers or reduces.

    Args:
        reach: of the solved program.
        unit: the module of the loop.
        loop: over batches.
        gathers: of the module.
    """

    def __init__(self, reach: Reach, unit: Unit, loop: cst.CSTNode, gathers: Iterable[Gather]) -> None:
        self.reach, self.unit = reach, unit
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
        for total in collecting(reach.state, unit, descendants(loop)):
            root = root_of(total.place)
            binding = unit.names.binding(root) if root is not None else None
            if binding is not None:
                self.kept.setdefault(binding, []).append(total)

    def joins(self, node: cst.CSTNode) -> bool:
        """Whether something below a node is gathered or reduced in place."""
        return not self._whole.isdisjoint(descendants(node))

    def holds(self, name: cst.Name) -> bool:
        """Whether a figure is made of what the loop gathers, or reduces, in some steps."""
        pending, seen, met = [name], set[Binding](), set[cst.CSTNode]()
        while pending:
            read = pending.pop()
            if read in self._whole or any(at < self.unit.names.order(read) for at in self._names.get(read.value, ())):
                return True
            binding = self.unit.names.binding(read)
            if binding is None:
                continue
            collected = [total for total in self.kept.get(binding, ()) if self._reads(read, total)]
            if any(self.joins(total.node) for total in collected):
                return True
            values = [value for total in collected if total.node not in met for value in total.value]
            values += [] if binding in seen else self._given(binding, name)
            seen.add(binding)
            met.update(total.node for total in collected)
            pending += [n for value in values for n in nodes_in(value, cst.Name)]
        return False

    def _given(self, binding: Binding, name: cst.Name) -> list[cst.BaseExpression]:
        """What a variable is given before a read; where that is nothing, whatever it is given."""
        order = self.unit.names.order
        before = [one for one in binding.definitions if order(one) < order(name)]
        return bindings_value(self.unit.names, binding, before or binding.definitions)

    def _reads(self, name: cst.Name, total: Total) -> bool:
        """Whether the read of a variable reads what a statement collects there: ``self.criterion(out)`` does not read
        ``self.history``, but for a method or a property that names it."""
        if name in set(descendants(total.node)):
            return False
        parents, root = self.unit.names.parents, root_of(total.place)
        kept = parents.get(root) if root is not None and root is not total.place else None
        taken = parents.get(name)
        if not isinstance(kept, cst.Attribute) or not isinstance(taken, cst.Attribute) or taken.value is not name:
            return True
        state, slot = self.reach.state, self.reach.state.values.get(name)
        things = slot.things if slot is not None else ()
        klasses = (t.klass if isinstance(t, Instance) else state.klass.get(t) for t in things)
        methods = [method for klass in klasses if klass and (method := klass.method(taken.attr.value)) is not None]
        runs = (part for method in methods for part in self.reach.runs(method.node.body, method.unit))
        return any(isinstance(n, cst.Attribute) and n.attr.value == kept.attr.value for n in (taken, *runs))


def root_of(place: cst.CSTNode) -> cst.Name | None:
    """The variable at the front of an attribute or an entry."""
    while isinstance(place, (cst.Attribute, cst.Subscript)):
        place = place.value
    return place if isinstance(place, cst.Name) else None
