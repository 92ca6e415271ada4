"""
Where something takes in a loader that exists: ``loaders = {"train": loader}``, ``bar = tqdm(loader)``.

It goes on with what the variable held then; so does another variable, ``other = loader``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from ...facts import container_methods
from ...facts.roles import Origin, Role
from ...facts.torch_api import surroundings
from ..syntax.walk import descendants
from .callees import method_name, outside_name
from .loader_wrappers import wraps
from .values import Mapping, Sequence, State, Unit, origins

_DISPLAYS = (cst.Dict, cst.List, cst.Set, cst.Tuple)
_MAKING = frozenset({"builtins.dict", "builtins.list", "builtins.tuple", "collections.OrderedDict"})


class Taken(NamedTuple):
    """A loader that is taken in."""

    node: cst.CSTNode
    """The expression, or the assignment, that does it."""
    source: cst.BaseExpression
    """The variable or the attribute that gives the loader."""
    loader: Origin
    target: cst.BaseExpression | None = None
    """What an assignment gives it to."""


def taken_in(state: State, unit: Unit, *roles: Role) -> Iterator[Taken]:
    """What takes loaders in, in a module; with roles, things of these."""
    roles = roles or (Role.LOADER,)
    for node in unit.names.every(*_DISPLAYS, cst.Assign):
        for value, target in _assigned(node) if isinstance(node, cst.Assign) else _items(unit, node):
            if not _only_shown(state, unit, node):
                yield from (Taken(node, source, loader, target) for source, loader in _given(state, unit, value, roles))
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None:
            continue
        held = record.receiver.things if record.receiver is not None else ()
        kept = container_methods.adds(method_name(call)) and any(isinstance(t, (Sequence, Mapping)) for t in held)
        for arg in call.args if kept or outside_name(record) in _MAKING else ():
            yield from (Taken(call, source, loader) for source, loader in _given(state, unit, arg.value, roles))


def _assigned(assign: cst.Assign) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """Each value of an assignment, and what it is given to."""
    for target in (each.target for each in assign.targets):
        if not isinstance(target, (cst.Tuple, cst.List)):
            yield assign.value, target
        elif isinstance(assign.value, (cst.Tuple, cst.List)) and len(target.elements) == len(assign.value.elements):
            for value, name in zip(assign.value.elements, target.elements, strict=True):
                yield value.value, name.value


def _items(unit: Unit, node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, None]]:
    """What a display holds, unless it is unpacked at once."""
    around = unit.names.parents.get(node)
    unpacked = isinstance(around, cst.Assign) and all(isinstance(t.target, _DISPLAYS) for t in around.targets)
    if isinstance(node, _DISPLAYS) and not unpacked and not isinstance(around, cst.AssignTarget):
        yield from ((element.value, None) for element in node.elements)


def _only_shown(state: State, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a value is gone with its statement: it becomes a text, ``f"{train_loader, test_loader}"``, or is
    the last line of a cell."""
    around = unit.names.parents.get(node)
    while isinstance(around, (*_DISPLAYS, cst.Element, cst.DictElement)):  # of a display in another
        around = unit.names.parents.get(around)
    call = unit.names.parents.get(around) if isinstance(around, cst.Arg) else None
    if isinstance(call, cst.Call) and call in state.calls:
        name = outside_name(state.calls[call])
        return method_name(call) == "format" or surroundings.prints_lines(name) or surroundings.makes_text(name)
    formatted = isinstance(around, cst.BinaryOperation) and isinstance(around.operator, cst.Modulo)
    return formatted or isinstance(around, (cst.FormattedStringExpression, cst.Expr))


def _given(
    state: State, unit: Unit, value: cst.BaseExpression, roles: Iterable[Role]
) -> Iterator[tuple[cst.BaseExpression, Origin]]:
    """The loaders that a variable or an attribute gives, or what wraps one, each with that variable."""
    held = state.values.get(value)
    if isinstance(value, (cst.Name, cst.Attribute)):
        yield from ((value, loader) for loader in origins(held, *roles))
    elif isinstance(value, cst.Call) and held is not None and not _opens(state, value):
        under = [slot for thing in held.things if isinstance(thing, Sequence) for slot in thing.wraps]
        loaders = [loader for loader in origins(held, Role.LOADER) if wraps(state, unit, value, loader)]
        loaders += [loader for slot in under for loader in origins(slot, Role.LOADER)]  # enumerate(loader)
        parts = [node for arg in value.args for node in descendants(arg.value)]
        names = [node for node in parts if isinstance(node, (cst.Name, cst.Attribute))]
        for loader in dict.fromkeys(loaders):
            source = next((name for name in names if loader in origins(state.values.get(name))), None)
            yield from [(source, loader)] if source is not None else []


def _opens(state: State, call: cst.Call) -> bool:
    """``iter(loader)``: what is drawn from it tells whether it trains, or only looks at a batch."""
    return call in state.calls and outside_name(state.calls[call]) == "builtins.iter"
