"""Where containers take loaders in: ``loaders = {"train": loader}``. They go on with what the variable held then."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.roles import Origin, Role
from .callees import method_name, outside_name
from .values import Mapping, Sequence, State, Unit, origins

_DISPLAYS = (cst.Dict, cst.List, cst.Set, cst.Tuple)
_ADDING = frozenset({"append", "extend", "insert", "add", "update", "setdefault"})
_MAKING = frozenset({"builtins.dict", "builtins.list", "builtins.tuple", "collections.OrderedDict"})


def taken_in(state: State, unit: Unit) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, Origin]]:
    """The expressions and statements of a module by which a container gets a loader that exists: each with the
    expression that gives the loader, and the loader."""
    for node in unit.names.every(*_DISPLAYS, cst.Assign):
        for value in _items(unit, node):
            yield from ((node, value, loader) for loader in _loaders(state, unit, value))
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None:
            continue
        held = record.receiver.things if record.receiver is not None else ()
        adds = method_name(call) in _ADDING and any(isinstance(thing, (Sequence, Mapping)) for thing in held)
        if adds or outside_name(record) in _MAKING:
            for arg in call.args:
                yield from ((call, arg.value, loader) for loader in _loaders(state, unit, arg.value))


def _items(unit: Unit, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """What a display holds, or what an assignment puts into a container: ``loaders["train"] = loader``."""
    if isinstance(node, cst.Assign):
        if any(isinstance(target.target, cst.Subscript) for target in node.targets):
            yield node.value
    elif isinstance(node, _DISPLAYS):
        around = unit.names.parents.get(node)
        unpacked = isinstance(around, cst.Assign) and all(isinstance(t.target, _DISPLAYS) for t in around.targets)
        if not unpacked and not isinstance(around, cst.AssignTarget):
            yield from (element.value for element in node.elements)


def _loaders(state: State, unit: Unit, value: cst.BaseExpression) -> list[Origin]:
    """The loaders that a variable or an attribute gives."""
    return origins(state.values.get(value), Role.LOADER) if isinstance(value, (cst.Name, cst.Attribute)) else []
