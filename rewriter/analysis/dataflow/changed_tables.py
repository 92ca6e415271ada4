"""Tables and lists that are changed under another name than that by which they are made: by who gets them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts import container_methods
from .solver import Thing
from .values import Mapping, Sequence, State, Unit


def changed_elsewhere(state: State, units: Iterable[Unit]) -> frozenset[Thing]:
    """The tables and the lists of a program to which code adds entries, or takes some out, that holds them as a
    parameter or an attribute."""
    found = (thing for unit in units for base in _changed(unit) for thing in _held(state, base))
    return state.once(changed_elsewhere, lambda: frozenset(found))


def changes(unit: Unit, base: cst.BaseExpression) -> bool:
    """Whether a table or a list is changed where it is named: ``figures["far"] = far``, ``rows.append(x)``."""
    around = unit.names.parents.get(base)
    if isinstance(around, cst.Subscript):
        return isinstance(unit.names.parents.get(around), (cst.AssignTarget, cst.Del, cst.Element))
    call = unit.names.parents.get(around) if isinstance(around, cst.Attribute) else None
    method = around.attr.value if isinstance(call, cst.Call) and isinstance(around, cst.Attribute) else ""
    return container_methods.changes(method)


def _changed(unit: Unit) -> Iterator[cst.BaseExpression]:
    for node in unit.names.every(cst.Subscript, cst.Attribute):
        assert isinstance(node, (cst.Subscript, cst.Attribute))
        if _is_handed(unit, node.value) and changes(unit, node.value):
            yield node.value


def _is_handed(unit: Unit, base: cst.BaseExpression) -> bool:
    binding = unit.names.binding(base) if isinstance(base, cst.Name) else None
    return binding is None or any(isinstance(definition, cst.Param) for definition in binding.definitions)


def _held(state: State, base: cst.BaseExpression) -> Iterator[Thing]:
    slot = state.values.get(base)
    yield from (thing for thing in slot.things if isinstance(thing, (Mapping, Sequence))) if slot is not None else ()
