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
        return [(unit, value) if value is not None else None for unit, _, value in self._set(thing, name)]

    def places(self, thing: Thing, name: str) -> list[cst.BaseExpression]:
        """Where that is: the attributes that are assigned; the objects where it is set by its name or by any."""
        return [place for _, place, _ in self._set(thing, name)]

    def _set(self, thing: Thing, name: str) -> Iterator[tuple[Unit, cst.BaseExpression, cst.BaseExpression | None]]:
        owners = {thing, *self._classes(self.klass(thing))}
        places: list[tuple[Unit, cst.BaseExpression, cst.BaseExpression, cst.BaseExpression | None]]
        places = [(unit, target, target.value, value) for unit, target, value in self._targets.get(name, ())]
        for word in (name, ""):
            places += [(unit, owner, owner, value) for unit, owner, value in self._by_name.get(word, ())]
        for unit, place, owner, value in places:
            held = self._state.values.get(owner)
            if held is not None and not owners.isdisjoint(held.things):
                yield unit, place, value

    def _classes(self, klass: Klass | None) -> Iterator[Klass]:
        """A class, and those that it inherits from: what is set there, an object has, too."""
        if klass is not None:
            yield klass
            for base in klass.bases:
                yield from self._classes(base)

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

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[Unit, cst.BaseExpression, cst.BaseExpression | None]]]:
        """What is set by the name of an attribute, by that name; under the empty one what is set by any."""
        found: dict[str, list[tuple[Unit, cst.BaseExpression, cst.BaseExpression | None]]] = {}
        for unit in self._reach.units:
            for owner, name, value in _named(unit):
                found.setdefault(name, []).append((unit, owner, value))
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
    for loop in unit.names.every(cst.For):
        if isinstance(loop, cst.For) and isinstance(loop.target, cst.Attribute):
            yield loop.target, None


def _named(unit: Unit) -> Iterator[tuple[cst.BaseExpression, str, cst.BaseExpression | None]]:
    """``setattr(config, "rate", 1)``, ``vars(config)["rate"] = 1``, ``config.__dict__.update(rate=1)``: the object, the
    name of the attribute, which is empty where it is not written out, and the value."""
    for call in unit.names.calls:
        plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
        if isinstance(call.func, cst.Name) and call.func.value == "setattr" and len(plain) == len(call.args) == 3:
            name = _text(plain[1])
            yield plain[0], name, plain[2] if name else None
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value == "update":
            owner = _table_of(call.func.value)
            for arg in call.args if owner is not None else ():
                assert owner is not None
                yield owner, arg.keyword.value if arg.keyword is not None else "", arg.value if arg.keyword else None
    for node in unit.names.every(cst.Assign):
        for target in node.targets if isinstance(node, cst.Assign) else ():
            place = target.target
            owner = _table_of(place.value if isinstance(place, cst.Subscript) else place)
            if owner is not None and isinstance(node, cst.Assign):
                index = place.slice[0].slice if isinstance(place, cst.Subscript) else None
                name = _text(index.value) if isinstance(index, cst.Index) else ""
                yield owner, name, node.value if name else None


def _table_of(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """The object of ``config.__dict__`` and ``vars(config)``."""
    if isinstance(node, cst.Attribute) and node.attr.value == "__dict__":
        return node.value
    of_vars = isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "vars"
    return node.args[0].value if of_vars and isinstance(node, cst.Call) and len(node.args) == 1 else None


def _text(node: cst.BaseExpression) -> str:
    return str(node.evaluated_value) if isinstance(node, cst.SimpleString) else ""


def _matched(
    target: cst.Tuple | cst.List, value: cst.BaseExpression
) -> Iterator[tuple[cst.Attribute, cst.BaseExpression | None]]:
    """``self.a, self.b = a, b``."""
    alike = isinstance(value, (cst.Tuple, cst.List)) and len(value.elements) == len(target.elements)
    for place, element in enumerate(target.elements):
        if isinstance(element.value, cst.Attribute):
            yield element.value, value.elements[place].value if alike else None  # type: ignore[attr-defined]
