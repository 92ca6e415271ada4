"""Devices that are kept as an attribute: ``args.device``, ``config.device``, and read in thirty places."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Code, Reach
from ..dataflow.program_flow import choice_around
from ..dataflow.values import State, Unit, origins
from ..syntax.scopes import Binding
from ..training.training import method_name
from .device_flags import Flag
from .device_names import condition_of

_NAMES = frozenset({"device", "dev"})


def kept_device(state: State, reach: Reach, gone: set[cst.CSTNode]) -> Flag | None:
    """
    The attribute that holds the script's device, as what the accelerator takes over and gives back.

    Args:
        state, reach: the solved program.
        gone: nodes that go with the moves; a read among them needs nothing any more.
    """
    for unit in reach.units:
        for node in state.values:
            if not (node.__class__ is cst.Attribute and node in unit.names.parents and _is_device(state, unit, node)):
                continue
            binding = unit.names.binding(node.value) if isinstance(node.value, cst.Name) else None
            if binding is not None and binding.definitions and not isinstance(binding.definitions[0], cst.Param):
                return _flag(state, reach, unit, node, binding, gone)
    return None


def _is_device(state: State, unit: Unit, node: cst.Attribute) -> bool:
    """Whether an attribute of something of the script's is called device, and used as one."""
    if node.attr.value.lower() not in _NAMES:
        return False
    base = state.values.get(node.value)
    if base is None or any(isinstance(t, Origin) for t in base.things) or not base.things:
        return False
    parent = unit.names.parents.get(node)
    if isinstance(parent, cst.Arg):
        call = unit.names.parents.get(parent)
        keyword = parent.keyword.value if parent.keyword is not None else ""
        return keyword in ("device", "map_location") or (
            isinstance(call, cst.Call) and method_name(call) in ("to", "device", "load")
        )
    return False


def _flag(
    state: State, reach: Reach, unit: Unit, node: cst.Attribute, binding: Binding, gone: set[cst.CSTNode]
) -> Flag | None:
    assert isinstance(node.value, cst.Name)
    text = f"{node.value.value}.{node.attr.value}"
    home: Code = unit.names.function(binding.definitions[0])
    reads: list[tuple[Unit, cst.Attribute]] = []
    sets: list[tuple[Unit, cst.Attribute]] = []
    for other_unit, other in _same(state, reach, node):
        parent = other_unit.names.parents.get(other)
        (sets if isinstance(parent, cst.AssignTarget) else reads).append((other_unit, other))
    if any(u is not unit or u.names.function(n) is not home for u, n in sets):
        return None
    left = [(u, n) for u, n in reads if n not in gone and not (u is unit and _sets(unit, n))]
    last = max((n for _, n in sets), key=unit.names.order, default=None)
    made = [o for o in origins(state.values.get(node), Role.DEVICE) if o.qualified != "follows"]
    kind = ".type" if made and all(o.qualified != "str" for o in made) else ""
    condition: str | None = f'{text}{kind} == "cpu"'
    if last is not None:
        assign = unit.names.parents.get(unit.names.parents[last])
        assert isinstance(assign, cst.Assign)
        condition = condition_of(state, unit, assign.value) if len(sets) == 1 else text
        if text in (condition or unit.names.module.code_for_node(assign.value)):
            torch_device = isinstance(assign.value, cst.Call) and method_name(assign.value) == "device"
            condition = f'{text}{".type" if torch_device else ""} == "cpu"'
    word = any(_as_word(u, n) for u, n in left)
    behind = choice_around(unit, last) if last is not None else None
    return Flag(unit, condition or "", node, behind, f"{text} = {{}}.device{'.type' if word else ''}" if left else "")


def _same(state: State, reach: Reach, node: cst.Attribute) -> Iterator[tuple[Unit, cst.Attribute]]:
    """The attributes of this name of the same thing."""
    held = set(state.values[node.value].things)
    for unit in reach.units:
        for other in list(state.values):
            if isinstance(other, cst.Attribute) and other in unit.names.parents and other.attr.value == node.attr.value:
                base = state.values.get(other.value)
                if base is not None and not held.isdisjoint(base.things):
                    yield unit, other
    for unit in reach.units:
        for statement in unit.names.parents:
            if isinstance(statement, cst.AssignTarget) and isinstance(statement.target, cst.Attribute):
                target = statement.target
                if target not in state.values and target.deep_equals(node) and unit is reach.units[0]:
                    yield unit, target


def _sets(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a read is in the statement that sets the attribute itself: ``args.device = f(args.device)``."""
    for around in unit.names.ancestors(node):
        if isinstance(around, cst.Assign):
            return any(isinstance(t.target, cst.Attribute) and t.target.deep_equals(node) for t in around.targets)
    return False


def _as_word(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a read of the device needs a string: it is compared, or ``args.device.startswith("cuda")``."""
    parent = unit.names.parents.get(node)
    if isinstance(parent, (cst.Comparison, cst.ComparisonTarget)):
        return True
    if isinstance(parent, cst.Attribute) and parent.value is node:
        return hasattr(str, parent.attr.value)
    call = unit.names.parents.get(parent) if isinstance(parent, cst.Arg) else None
    keyword = parent.keyword.value if isinstance(parent, cst.Arg) and parent.keyword is not None else ""
    return keyword == "device_type" or (isinstance(call, cst.Call) and method_name(call) == "autocast")
