"""
Whether there is a value, or ``None``: what decides that, of a variable, an attribute, and what a call gives.

A variable that is set to None in one place and to a tensor in another is None on all processes or on none, as long as
what chooses between them is equal everywhere. What a function gives where the rows that it is handed are good, and
None where they are not, is one process's own answer. So is what code gives that is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import questions, surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import made_names, outside_names
from ..dataflow.drawn_batches import iterator_drawn
from ..dataflow.values import CallRecord, Function, Instance, Mapping, State, Unit, origins
from ..syntax.definitions import plain_values, unshadowed
from ..syntax.leaving import ends
from ..syntax.names import Names
from ..syntax.nodes import FunctionNode, is_none, keyword
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from .writes import Key, Part


@dataclass(frozen=True)
class DivergenceSource:
    """A place at which something that is one process's own comes in."""

    node: cst.CSTNode


@dataclass(frozen=True)
class Variable:
    """A variable as one read of it sees it: of its definitions those that can reach that place."""

    binding: Binding
    definitions: tuple[cst.CSTNode, ...]

    def __hash__(self) -> int:
        return hash((self.binding, *map(id, self.definitions)))  # a node is its id, and answers slowly


@dataclass(frozen=True)
class Presence(Variable):
    """Whether a variable holds a value where it is read, or None."""

    __hash__ = Variable.__hash__


def asked_for_none(node: cst.CSTNode) -> cst.BaseExpression | None:
    """What ``targets is None`` asks about; None for other expressions."""
    if type(node) is not cst.Comparison or len(node.comparisons) != 1:
        return None
    asked = node.comparisons[0]
    is_asked = isinstance(asked.operator, (cst.Is, cst.IsNot)) and is_none(asked.comparator)
    return node.left if is_asked else None


class Presences:
    """
    Finds what decides whether there is a value.

    Args:
        keys: what the value of an expression depends on.
        result: on what it depends whether a call of a function of the program gives a value.
        drawn: whether a call takes a batch from a prepared loader.
    """

    def __init__(
        self,
        state: State,
        reach: Reach,
        keys: Callable[[Unit, cst.CSTNode], Iterable[Key]],
        result: Callable[[Unit, cst.Call, FunctionNode, int | None], Iterator[Key]],
        drawn: Callable[[cst.CSTNode], bool],
    ) -> None:
        self.state, self.reach = state, reach
        self._keys, self._result, self._drawn = keys, result, drawn

    def of(self, unit: Unit, node: cst.CSTNode) -> Iterator[Key]:
        """What decides whether an expression is None."""
        if isinstance(node, cst.Name):
            binding = unit.names.binding(node)
            if binding is not None and not is_none(node):
                yield Presence(binding, unshadowed(unit.names, binding, node))
        elif isinstance(node, cst.Attribute):
            word = node.attr.value
            yield from self._set(self._assigned(unit, node), lambda part: getattr(part, "attr", part).value == word)
        elif isinstance(node, cst.Call):
            yield from self.call(unit, node)
        elif isinstance(node, cst.Subscript):
            if not origins(self.state.values.get(node.value)):
                for element in node.slice:
                    yield from self._keys(unit, element)
        elif isinstance(node, cst.IfExp):
            if is_none(node.body) is not is_none(node.orelse):
                yield from self._keys(unit, node.test)
            yield from (*self.of(unit, node.body), *self.of(unit, node.orelse))
        elif isinstance(node, cst.BooleanOperation):
            yield from self._either(unit, node)
        elif isinstance(node, (cst.NamedExpr, cst.Await)):
            yield from self.of(unit, node.value if isinstance(node, cst.NamedExpr) else node.expression)

    def _either(self, unit: Unit, node: cst.BooleanOperation) -> Iterator[Key]:
        """``a or b``, ``a and b``: which of them it is, where one may be None."""
        right = list(self.of(unit, node.right))
        if right or is_none(node.right):
            yield from self._keys(unit, node.left)
        if isinstance(node.operator, cst.And):
            yield from self.of(unit, node.left)
        yield from right

    def behind(self, asked: Presence) -> Iterator[Key]:
        """What decides whether a variable is None, what its function is handed apart."""
        unit = self.reach.unit(asked.binding.scope.function.node)
        given: list[tuple[Unit, cst.CSTNode | Part]] = []
        for definition in asked.definitions:
            if isinstance(definition, cst.Param):
                continue
            loop = next((a for a in unit.names.ancestors(definition) if isinstance(a, (cst.For, cst.CompFor))), None)
            if loop is not None and definition in set(descendants(loop.target)):
                yield from self._turn(unit, loop, definition)
            elif (value := _given(unit, definition)) is not None:
                given.append((unit, value))
        binding = asked.binding
        yield from self._set(given, lambda part: isinstance(part, cst.Name) and unit.names.binding(part) is binding)

    def _turn(self, unit: Unit, loop: cst.For | cst.CompFor, target: cst.CSTNode) -> Iterator[Key]:
        """What decides whether a loop gives a value in a turn: a loader, or a generator of the program."""
        if self._drawn(loop):
            yield from self._batch(loop, self.reach.loaders(loop)) if target is loop.target else ()
        elif isinstance(loop.iter, cst.Call):
            for function in self.reach.called(loop.iter):
                yield from self._result(unit, loop.iter, function, None)

    def _set(self, given: Iterable[tuple[Unit, cst.CSTNode | Part]], is_it: Callable[[Any], bool]) -> Iterator[Key]:
        """What decides whether there is a value among those that something is set to: where one of them is None, the
        conditions under which each is set."""
        given = list(given)
        absent = len(given) > 1 and any(isinstance(value, cst.CSTNode) and is_none(value) for _, value in given)
        for unit, value in given:
            yield from self.call(unit, value.call, value.place) if isinstance(value, Part) else self.of(unit, value)
            if absent:
                yield from self._conditions(unit, value.call if isinstance(value, Part) else value, is_it)

    def _conditions(
        self, unit: Unit, node: cst.CSTNode, is_it: Callable[[Any], bool] = lambda part: False
    ) -> Iterator[Key]:
        """What the conditions depend on under which a node runs; those apart by which ``it`` gets its first value
        anyway, or keeps one: ``best is None or score < best``."""
        for around, below in unit.names.outwards(node):
            if isinstance(around, cst.Try) and around.handlers and below is not around.finalbody:
                yield from self._fails(unit, around)
            elif isinstance(around, (cst.If, cst.While)) and below is not around.test:
                if not any(is_it(part) for part in _settled(around.test)):
                    yield from self._keys(unit, around.test)

    def _fails(self, unit: Unit, attempt: cst.Try) -> Iterator[Key]:
        """What decides whether a ``try`` fails. Prepared loaders come to their end on all processes together."""
        caught = [unit.names.module.code_for_node(each.type) if each.type else "" for each in attempt.handlers]
        for node in nodes_in(attempt.body, cst.Call) if set(caught) == {"StopIteration"} else (attempt.body,):
            if not (isinstance(node, cst.Call) and self._drawn(node)):
                yield from self._keys(unit, node)

    def _assigned(self, unit: Unit, node: cst.Attribute) -> Iterator[tuple[Unit, cst.CSTNode]]:
        """The values that the program sets an attribute of an object of its classes to."""
        klass: cst.CSTNode | None = None
        if isinstance(node.value, cst.Name) and node.value.value == "self":
            klass = next((a for a in unit.names.ancestors(node) if isinstance(a, cst.ClassDef)), None)
        slot = self.state.values.get(node.value)
        things = slot.things if slot is not None else ()
        classes = {each.node for t in things if isinstance(t, Instance) for each in t.klass.lineage()} | {klass}
        for home, around, value in self._fields.get(node.attr.value, ()):
            if around in classes - {None}:
                yield home, value

    @cached_property
    def _fields(self) -> dict[str, list[tuple[Unit, cst.CSTNode, cst.CSTNode]]]:
        """For each name of an attribute what ``self.name = ...`` sets it to, with the module and the class."""
        found: dict[str, list[tuple[Unit, cst.CSTNode, cst.CSTNode]]] = {}
        for unit in self.reach.units:
            for node in unit.names.every(cst.Assign):
                for target in node.targets if isinstance(node, cst.Assign) else ():
                    held = target.target
                    if isinstance(held, cst.Attribute) and getattr(held.value, "value", "") == "self":
                        around = next((a for a in unit.names.ancestors(node) if isinstance(a, cst.ClassDef)), None)
                        if around is not None and isinstance(node, cst.Assign):
                            found.setdefault(held.attr.value, []).append((unit, around, node.value))
        return found

    # What calls give --------------------------------------------------------------------------------------------------

    def call(self, unit: Unit, node: cst.Call, place: int | None = None) -> Iterator[Key]:
        """What decides whether a call gives a value."""
        record = self.state.calls.get(node)
        called = self.reach.called(node)
        for function in called:
            yield from self._result(unit, node, function, place)
        if called or record is None:
            return
        held = record.receiver.things if record.receiver is not None else ()
        if held and all(isinstance(thing, Mapping) for thing in held):  # figures.get(name)
            yield from (key for arg in node.args for key in self._keys(unit, arg))
        elif iterator_drawn(record):
            batches = origins(record.result, Role.BATCH)
            loaders = [batch.source for batch in batches if batch.source is not None]
            yield from self._batch(node, loaders) if self._drawn(node) else ()
        elif _may_give_none(record):
            yield from (key for part in (node.func, *node.args) for key in self._keys(unit, part))

    def _batch(self, node: cst.CSTNode, loaders: Iterable[Origin]) -> Iterator[Key]:
        """What decides whether a loader gives a batch: its ``collate_fn``, by the samples that it gets."""
        for loader in loaders:
            made = loader.node
            collate = keyword(made, "collate_fn", 6) if isinstance(made, cst.Call) else None
            held = self.state.values.get(collate) if collate is not None else None
            functions = [t for t in held.things if isinstance(t, Function)] if held is not None else []
            if any(self._chooses(function) for function in functions):
                yield DivergenceSource(node)

    def _chooses(self, function: Function) -> bool:
        """Whether a function gives None for some samples: ``return default_collate(rows) if rows else None``."""
        names, node = function.unit.names, function.node
        returned = [each.value for each in names.returns.get(node, ())]
        if isinstance(node, cst.Lambda):
            returned = [node.body]
        elif not ends(node.body, lambda node: False):
            returned.append(None)
        given = (one for value in returned for one in ([value] if value is None else _choice(names, value)))
        return len({one is None or is_none(one) for one in given}) > 1

    def given(self, function: FunctionNode, values: Iterable[cst.CSTNode]) -> Iterator[Key]:
        """What decides whether a function gives a value; ``values`` are what it returns, or yields, at one place."""
        unit = self.reach.unit(function)
        yields = self.reach.yields(function)
        values = [value.value or value if isinstance(value, cst.Yield) else value for value in values]
        returned = [] if yields else unit.names.returns.get(function, [])
        bare = [each for each in returned if each.value is None]
        falls = isinstance(function, cst.FunctionDef) and not yields and not ends(function.body, lambda node: False)
        for value in values:
            yield from self.of(unit, value)
        if (bare or falls or any(map(is_none, values))) and not all(map(is_none, values)):
            for node in (*bare, *values):
                yield from self._conditions(unit, node)


def _settled(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What has a value where a condition is met that sets it, whatever else it asks: what it asks for None in one of
    its alternatives, and what has a value in all of them."""
    if isinstance(test, cst.BooleanOperation):
        either = isinstance(test.operator, cst.Or)
        for side in (test.left, test.right):
            if (asked := asked_for_none(side)) is not None and isinstance(_operator(side), cst.Is) is either:
                yield asked
            elif isinstance(side, cst.BooleanOperation):
                yield from _settled(side)
    elif (asked := asked_for_none(test)) is not None:
        yield asked


def _operator(node: cst.CSTNode) -> cst.BaseCompOp | None:
    return node.comparisons[0].operator if isinstance(node, cst.Comparison) else None


def _may_give_none(record: CallRecord) -> bool:
    """Whether an outside call may give None or a value, by its arguments: of known ones only those that search."""
    if any(origin.role is not Role.LOCAL for origin in (*origins(record.receiver), *origins(record.result))):
        return False
    names = outside_names(record) or made_names(record)
    known = [name for name in names if not questions.is_unknown(name) or questions.is_described(name.partition(".")[0])]
    return not names or len(known) < len(names) or any(map(surroundings.may_find_nothing, known))


def _given(unit: Unit, definition: cst.CSTNode) -> cst.CSTNode | Part | None:
    """What an assignment gives a name; None for other statements, and for one that adds to a value."""
    names, parent = unit.names, unit.names.parents.get(definition)
    if isinstance(parent, (cst.AnnAssign, cst.NamedExpr)):
        return parent.value
    place: int | None = None
    if isinstance(parent, cst.Element):
        target = names.parents.get(parent)
        if not isinstance(target, (cst.Tuple, cst.List)):
            return None
        place = list(target.elements).index(parent)
        parent = names.parents.get(target)
    assign = names.parents.get(parent) if isinstance(parent, cst.AssignTarget) else None
    value = assign.value if isinstance(assign, cst.Assign) else None
    if place is None or value is None:
        return value
    if isinstance(value, (cst.Tuple, cst.List)):
        return value.elements[place].value if place < len(value.elements) else None
    return Part(value, place) if isinstance(value, cst.Call) else None


def _choice(
    names: Names, value: cst.BaseExpression, seen: frozenset[str] = frozenset()
) -> Iterator[cst.BaseExpression]:
    """The values of which an expression is one."""
    if isinstance(value, cst.IfExp):
        yield from (*_choice(names, value.body, seen), *_choice(names, value.orelse, seen))
    elif isinstance(value, cst.Name) and value.value not in seen and (given := plain_values(names, value)):
        for one in given:
            yield from _choice(names, one, seen | {value.value})
    else:
        yield value
