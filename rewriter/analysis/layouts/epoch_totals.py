"""
The statements of a training loop that collect something to be read when the loop is over: in a variable, an attribute,
an entry of a dict, a list that has another name elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import libcst as cst

from ...facts.container_methods import adds_in_order
from ...facts.torch_api.kinds.tensors import Concat
from ...facts.torch_api.loading import transfer
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_names
from ..dataflow.containers import collects
from ..dataflow.values import State, Unit
from ..syntax.nodes import dotted
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from ..training.step_counts import bars
from .loop_step import is_synchronised
from .losses import assigned

_NUMPY_ROWS = frozenset({"np.r_", "numpy.r_"})


@dataclass(eq=False)
class Total:
    """One statement that collects."""

    node: cst.CSTNode
    value: list[cst.BaseExpression]
    """What is added."""
    place: cst.BaseExpression
    """Where it is kept: a variable, an attribute, an entry, the object whose method is called."""
    joins: bool = False
    """What is kept is set anew with further entries: ``losses = np.append(losses, loss.item())``."""

    @property
    def lists(self) -> bool:
        """Whether it adds entries, and no numbers to a number, as far as the statement itself says it."""
        return self.joins or (isinstance(self.node, cst.Call) and in_place_sum(self.node) is None)

    @property
    def kept_in(self) -> cst.BaseExpression:
        """Its place; for an entry of which the key is computed, ``table[y[i]]``, what has the entries."""
        place = self.place
        while isinstance(place, cst.Subscript) and not _is_written_out(place):
            place = place.value
        return place


def collecting(state: State, unit: Unit, nodes: Iterable[cst.CSTNode]) -> Iterator[Total]:
    """The statements among some nodes that add something to what was there, a bar's count of rows left out."""
    for node in nodes:
        if isinstance(node, cst.AugAssign):
            yield Total(node, [node.value], node.target)
        elif isinstance(node, cst.Assign) and len(node.targets) == 1:
            added, joined = _added(node), joined_to(state, node)
            if added is not None or joined:
                yield Total(node, [added] if added is not None else joined, node.targets[0].target, added is None)
        elif isinstance(node, cst.Call) and (sum_ := in_place_sum(node)) is not None:
            yield Total(node, [sum_.added], sum_.total)
        elif isinstance(node, cst.Call) and collects(state, node):
            holder = node.func.value if isinstance(node.func, cst.Attribute) else None
            if holder is not None and not is_synchronised(state, node) and not any(bars(unit, holder)):
                yield Total(node, [arg.value for arg in node.args], holder)


class InPlaceSum(NamedTuple):
    """``total.add_(loss)``, ``torch.add(total, loss, out=total)``."""

    total: cst.BaseExpression
    added: cst.BaseExpression


def in_place_sum(node: cst.Call) -> InPlaceSum | None:
    """What a call adds to a tensor in place; None where it does something else, or gives what it adds a weight."""
    name, plain = method_name(node), [arg.value for arg in node.args if arg.keyword is None and not arg.star]
    words = {arg.keyword.value: arg.value for arg in node.args if arg.keyword is not None}
    if name == "add_" and isinstance(node.func, cst.Attribute) and len(plain) == len(node.args) == 1:
        total = node.func.value
        while isinstance(total, cst.Attribute) and total.attr.value == "data":
            total = total.value
        return InPlaceSum(total, plain[0])
    out = words.get("out")
    if name == "add" and out is not None and len(words) == 1 and len(plain) == 2 == len(node.args) - 1:
        added = [value for value in plain if not value.deep_equals(out)]
        return InPlaceSum(out, added[0]) if len(added) == 1 else None
    return None


def deciding(unit: Unit, loop: cst.CSTNode, total: Total) -> Iterator[cst.BaseExpression]:
    """What decides, beside the value itself, what a statement of a loop adds: the entry that it is added to, the
    condition of ``1 if right else 0``, and in which turns of the loops and conditions around it."""
    yield from (part.test for value in total.value for part in nodes_in(value, cst.IfExp))
    place = total.place
    while isinstance(place, (cst.Attribute, cst.Subscript)):
        if isinstance(place, cst.Subscript):
            yield from (part.slice.value for part in place.slice if isinstance(part.slice, cst.Index))
        place = place.value
    for around in unit.names.ancestors(total.node):
        if around is loop:
            return
        if isinstance(around, cst.For):
            yield around.iter
        elif isinstance(around, (cst.If, cst.While)):
            yield around.test


class Totals:
    """Finds those in one loop whose total is read when the loop is over."""

    def __init__(self, state: State, unit: Unit, reach: Reach, loop: cst.CSTNode) -> None:
        self.state, self.unit, self.reach = state, unit, reach
        self.inside = set(descendants(loop))

    def among(self, statements: list[cst.CSTNode]) -> Iterator[Total]:
        """Those below some statements of the loop."""
        nodes = (n for statement in statements for n in descendants(statement))
        for total in collecting(self.state, self.unit, nodes):
            lists = isinstance(total.node, cst.Call) and adds_in_order(method_name(total.node))
            if self._outlives(total.place) or (lists and self._has_another_name(total.place)):
                yield total

    def entries(self, statements: list[cst.CSTNode]) -> Iterator[Total]:
        """What is kept below some statements of the loop for each of its turns: ``curve[step] = loss.item()``."""
        for node in (n for statement in statements for n in descendants(statement)):
            place = node.targets[0].target if isinstance(node, cst.Assign) and len(node.targets) == 1 else None
            if not isinstance(node, cst.Assign) or not isinstance(place, cst.Subscript) or _is_written_out(place):
                continue
            if self._outlives(place) or self._has_another_name(place.value):
                yield Total(node, [node.value], place)

    def _outlives(self, place: cst.CSTNode) -> bool:
        """Whether what is kept in a place is read when the loop is over."""
        if isinstance(place, cst.Name):
            return self._is_read_behind(self.unit.names.binding(place))
        if isinstance(place, cst.Subscript):
            return self._outlives(place.value)
        if isinstance(place, cst.Attribute):
            return self._is_attribute_read(place.attr.value)
        return False

    def _is_read_behind(self, binding: Binding | None) -> bool:
        if binding is None or all(d in self.inside for d in binding.definitions):
            return False
        return self._is_read_outside(binding) or any(self._averaged(read) for read in binding.reads)

    def _is_read_outside(self, binding: Binding) -> bool:
        return any(read not in self.inside and not self._is_set(self.unit, read) for read in binding.reads)

    def _averaged(self, read: cst.CSTNode) -> bool:
        """Whether a figure is computed from a total at each step, and the last one is read after the loop:
        ``mean = total / (i + 1)``."""
        assign = next(self.unit.names.enclosing(read, cst.Assign), None) if read in self.inside else None
        target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
        if not isinstance(assign, cst.Assign) or not isinstance(target, cst.Name) or assign not in self.inside:
            return False
        if not isinstance(assign.value, cst.BinaryOperation):
            return False
        figure = self.unit.names.binding(target)
        return figure is not None and read in set(descendants(assign.value)) and self._is_read_outside(figure)

    def _is_attribute_read(self, name: str) -> bool:
        for unit in self.reach.units:
            for node in unit.names.every(cst.Attribute):
                named = isinstance(node, cst.Attribute) and node.attr.value == name
                if named and node not in self.inside and not self._is_set(unit, node):
                    return True
        return False

    def _is_set(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether a place, or an entry of it, is only given a value: ``total["loss"] = 0.0``."""
        parents = unit.names.parents
        parent = parents.get(node)
        while isinstance(parent, cst.Subscript) and parent.value is node:
            node, parent = parent, parents.get(parent)
        return isinstance(parent, cst.AssignTarget)

    def _has_another_name(self, holder: cst.BaseExpression) -> bool:
        """Whether a list comes from elsewhere: a parameter, an element of a tuple that is looped over."""
        binding = self.unit.names.binding(holder) if isinstance(holder, cst.Name) else None
        if binding is None or any(d in self.inside for d in binding.definitions):
            return False
        return bool(binding.definitions) and all(assigned(self.unit, d) is None for d in binding.definitions)


def _added(node: cst.Assign) -> cst.BaseExpression | None:
    """What ``total = total + more`` adds."""
    target, value = node.targets[0].target, node.value
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Add):
        return None
    if value.left.deep_equals(target):
        return value.right
    return value.left if value.right.deep_equals(target) else None


def joined_to(state: State, node: cst.Assign) -> list[cst.BaseExpression]:
    """The entries that are joined to what was there: ``rows = torch.cat((rows, out))``, ``names = [*names, name]``,
    ``losses = np.append(losses, loss.item())``; none where it does something else."""
    target = node.targets[0].target
    parts: list[cst.BaseExpression] = []
    value = node.value
    record = state.calls.get(value) if isinstance(value, cst.Call) else None
    if isinstance(value, cst.Call) and record is not None:
        if any(isinstance(one := transfer(name, Concat), Concat) and not one.new for name in outside_names(record)):
            given = [arg.value for arg in value.args if arg.keyword is None]
            first = given[0] if given else None
            parts = [e.value for e in first.elements] if isinstance(first, (cst.Tuple, cst.List)) else given[:2]
    elif isinstance(value, (cst.Tuple, cst.List)):
        parts = [element.value for element in value.elements]
        if not any(isinstance(e, cst.StarredElement) and e.value.deep_equals(target) for e in value.elements):
            return []
    elif isinstance(value, cst.Subscript) and dotted(value.value) in _NUMPY_ROWS:
        parts = [e.slice.value for e in value.slice if isinstance(e.slice, cst.Index)]
    rest = [part for part in parts if not part.deep_equals(target)]
    return rest if len(rest) < len(parts) else []


def _is_written_out(place: cst.Subscript) -> bool:
    """Whether the key of an entry is written out: ``sums["loss"]``."""
    index = place.slice[0].slice
    return isinstance(index, cst.Index) and isinstance(index.value, (cst.SimpleString, cst.Integer))
