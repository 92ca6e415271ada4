"""Devices that objects keep, ``self.device = ...``: they are redefined where they are set, not where they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from ...facts.placement import DeviceRead, Move, Placement
from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Reach
from ..dataflow.values import State, Unit, origins
from ..syntax.nodes import dotted
from ..syntax.scopes import Binding
from .device_names import DeviceName, numbered

_DEPTH = 4
"""Parameters are followed through so many calls."""


@dataclass(eq=False)
class DeviceField:
    """One assignment of a device to an attribute."""

    target: cst.Attribute
    value: cst.BaseExpression
    statement: cst.CSTNode
    unit: Unit

    @property
    def code(self) -> cst.CSTNode:
        """The function that contains it."""
        return self.unit.names.function(self.target)

    def name(self, others: Iterable[DeviceField] = ()) -> DeviceName:
        """The same, as a variable would be described; ``others``: further assignments to it in the same code."""
        scope = self.unit.names.scopes[self.code]
        found = sorted((self, *others), key=lambda field: self.unit.names.order(field.statement))
        return DeviceName(
            Binding(self.target.attr.value, scope), [f.statement for f in found], [f.value for f in found]
        )


def device_fields(state: State, unit: Unit) -> list[DeviceField]:
    """The assignments of a module that give an attribute a device which the script chose."""
    found = []
    for node in unit.names.within:
        parent = unit.names.parents.get(node) if isinstance(node, cst.Attribute) else None
        assign = unit.names.parents.get(parent) if isinstance(parent, cst.AssignTarget) else None
        if isinstance(assign, cst.Assign) and isinstance(node, cst.Attribute) and len(assign.targets) == 1:
            if _is_device(state, assign.value):
                found.append(DeviceField(node, assign.value, unit.names.statement(node), unit))
    return found


def _is_device(state: State, value: cst.BaseExpression) -> bool:
    slot = state.values.get(value)
    held = [t for t in (slot.things if slot is not None else ()) if isinstance(t, Origin)]
    return bool(held) and all(o.role is Role.DEVICE and o.qualified != "follows" for o in held)


def is_superseded(field: DeviceField, state: State) -> bool:
    """Whether the same code gives such an attribute the accelerator's device, after it."""
    names = field.unit.names
    for node in names.every(cst.Attribute):
        assign = names.parents.get(names.parents[node])
        if isinstance(assign, cst.Assign) and node.deep_equals(field.target) and names.function(node) is field.code:
            follows = any(o.qualified == "follows" for o in origins(state.values.get(assign.value), Role.DEVICE))
            if follows and names.order(assign) > names.order(field.statement):
                return True
    return False


def redefined(field: DeviceField, state: State, gone: Collection[cst.CSTNode]) -> Iterator[DeviceRead]:
    """The new value of such an attribute, unless it has one already or a number is appended to it."""
    kept = field.target.attr.value
    reads = (n for n in field.unit.names.every(cst.Attribute) if n.attr.value == kept)
    if field.value not in gone and not any(numbered(field.unit, read) for read in reads):
        word = all(o.qualified == "str" for o in origins(state.values.get(field.value), Role.DEVICE))
        yield DeviceRead(field.value, word)


def given_fields(reach: Reach, fields: Iterable[DeviceField], devices: Collection[Binding]) -> set[str]:
    """
    The attributes that only ever get what a caller gives: one of the variables that hold the script's device.

    Where such a variable has become the accelerator's device, so has the attribute, and nothing that reads it needs
    the accelerator.
    """
    named: dict[str, list[DeviceField]] = {}
    for field in fields:
        named.setdefault(field.target.attr.value, []).append(field)
    return {name for name, found in named.items() if all(_is_given(reach, f.unit, f.value, devices) for f in found)}


def _is_given(
    reach: Reach, unit: Unit, value: cst.BaseExpression, devices: Collection[Binding], depth: int = _DEPTH
) -> bool:
    """Whether a value is a parameter for which every call gives one of some variables."""
    binding = unit.names.binding(value) if isinstance(value, cst.Name) else None
    params = binding.definitions if binding is not None else ()
    if binding is None or not params or not all(isinstance(p, cst.Param) and p.default is None for p in params):
        return False
    given = list(reach.given(binding))
    return bool(given) and all(
        (isinstance(one, cst.Name) and caller.names.binding(one) in devices)
        or (depth > 0 and _is_given(reach, caller, one, devices, depth - 1))
        for caller, one in given
    )


def follows_field(placement: Placement, names: Collection[str]) -> bool:
    """Whether a move goes to an attribute that is redefined, and so can stay as it is."""
    target = placement.target
    return placement.move is Move.RETARGET and isinstance(target, cst.Attribute) and target.attr.value in names


def fields_of_class(fields: Iterable[DeviceField], unit: Unit, read: cst.BaseExpression | None) -> list[DeviceField]:
    """The assignments to an attribute that the methods of a class read, ``self.device``, in that class."""
    around = class_around(unit, read) if isinstance(read, cst.Attribute) and dotted(read.value) == "self" else None
    if around is None or not isinstance(read, cst.Attribute):
        return []
    same = (f for f in fields if f.unit is unit and f.target.deep_equals(read))
    return [field for field in same if class_around(unit, field.target) is around]


def class_around(unit: Unit, node: cst.CSTNode) -> cst.CSTNode | None:
    """The class whose code a node is."""
    return next((around for around in unit.names.ancestors(node) if isinstance(around, cst.ClassDef)), None)
