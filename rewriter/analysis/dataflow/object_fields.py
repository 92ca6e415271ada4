"""What a program sets as attributes of its objects, in whatever code: ``self.reduction = reduction``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from .call_graph import Reach, reach_of
from .solver import Thing
from .values import Instance, Klass, State, Unit

Write = tuple[Unit, cst.BaseExpression]


class ObjectFields:
    """Answers for one solved program."""

    def __init__(self, state: State, reach: Reach) -> None:
        self._state, self._reach = state, reach

    def klass(self, thing: Thing) -> Klass | None:
        """The class of the program that an object belongs to."""
        return thing.klass if isinstance(thing, Instance) else self._state.klass.get(thing)

    def writes(self, thing: Thing, name: str) -> list[Write | None]:
        """What may be set as an attribute of an object, wherever; None for what is no plain value."""
        found: list[Write | None] = []
        for unit, target, value in self._targets.get(name, ()):
            held = self._state.values.get(target.value)
            if held is not None and thing in held.things:
                found.append((unit, value) if value is not None else None)
        return found

    def stores(self, thing: Thing, kept: Thing) -> list[tuple[Unit, cst.BaseExpression]]:
        """What is set as an attribute of an object and may be another thing, wherever."""
        found = []
        for name, targets in self._targets.items():
            if kept in self._state.field(thing, name).things:
                for unit, target, value in targets:
                    held = self._state.values.get(target.value)
                    given = self._state.values.get(value) if value is not None else None
                    if held is not None and thing in held.things and given is not None and kept in given.things:
                        assert value is not None
                        found.append((unit, value))
        return found

    @cached_property
    def _targets(self) -> dict[str, list[tuple[Unit, cst.Attribute, cst.BaseExpression | None]]]:
        found: dict[str, list[tuple[Unit, cst.Attribute, cst.BaseExpression | None]]] = {}
        for unit in self._reach.units:
            for target, value in _written(unit):
                found.setdefault(target.attr.value, []).append((unit, target, value))
        return found


def fields_of(state: State) -> ObjectFields:
    """What a solved program sets as attributes: one object for all that ask."""
    return state.once(ObjectFields, lambda: ObjectFields(state, reach_of(state)))


def _written(unit: Unit) -> Iterator[tuple[cst.Attribute, cst.BaseExpression | None]]:
    """The attributes that a module sets, and each value; None where that is not an expression of its own."""
    for node in unit.names.every(cst.Assign, cst.AnnAssign, cst.AugAssign):
        if isinstance(node, cst.Assign):
            for target in node.targets:
                if isinstance(target.target, cst.Attribute):
                    yield target.target, node.value
                elif isinstance(target.target, (cst.Tuple, cst.List)):
                    yield from _matched(target.target, node.value)
        elif isinstance(node, (cst.AnnAssign, cst.AugAssign)) and isinstance(node.target, cst.Attribute):
            yield node.target, node.value if isinstance(node, cst.AnnAssign) else None


def _matched(
    target: cst.Tuple | cst.List, value: cst.BaseExpression
) -> Iterator[tuple[cst.Attribute, cst.BaseExpression | None]]:
    """``self.a, self.b = a, b``."""
    alike = isinstance(value, (cst.Tuple, cst.List)) and len(value.elements) == len(target.elements)
    for place, element in enumerate(target.elements):
        if isinstance(element.value, cst.Attribute):
            yield element.value, value.elements[place].value if alike else None  # type: ignore[attr-defined]
