"""Loaders of classes of the script that iterate in a way of their own, and objects that are given in their place."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from ...facts.torch_api.kinds.tensors import Reshape
from ...facts.torch_api.loading import transfer
from ..syntax.definitions import plain_values
from ..syntax.walk import descendants
from .call_graph import Reach
from .callees import method_name, outside_names
from .code_place import CodePlace
from .containers import members
from .values import External, Instance, Klass, State, Unit, origins

_DRAWS = frozenset({"__iter__", "_get_iterator"})


def own_iterator(reach: Reach, loader: Origin) -> CodePlace | None:
    """
    The ``__iter__`` of a loader's class, if nothing that it runs asks torch's loader for batches.

    Such a loader reads its samplers by hand, or an iterator that was made with the loader: what ``prepare`` puts
    underneath is never reached.
    """
    klass = reach.state.klass.get(loader)
    method = klass.method("__iter__") if klass is not None else None
    if method is None:
        return None
    for code in reach.below(method.node):
        for node in reach.own(code):
            if isinstance(node, cst.Call) and _draws(reach.state, node):
                return None
    return CodePlace(method.unit, method.node)


class StandIn(NamedTuple):
    """What a loop iterates in place of a loader, in another call of its code."""

    name: cst.BaseExpression
    """The loader, in the loop."""
    text: str
    """What is given in its place, in words."""
    known: bool
    """It is none, and holds none; else nothing is known of it."""


def stand_in(reach: Reach, loop: cst.CSTNode) -> StandIn | None:
    """
    What a loop iterates in place of a loader, in another call of its code: an object of a class of the script, or a
    list, a generator, what a package gives.

    Not one that keeps a loader, or iterates one: it gives the batches of that.
    """
    state = reach.state
    source = loop.iter if isinstance(loop, (cst.For, cst.CompFor)) else None
    for node in descendants(source) if source is not None else ():
        held = state.values.get(node) if isinstance(node, (cst.Name, cst.Attribute)) else None
        if held is not None and origins(held, Role.LOADER):
            assert isinstance(node, cst.BaseExpression)
            for thing in held.things:
                if isinstance(thing, Instance) and _iterates_alone(reach, thing):
                    return StandIn(node, f"an object of {thing.klass.node.name.value}", True)
            unit = reach.unit_of(node, reach.units[0])
            binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
            for home, value in reach.given(binding) if binding is not None else ():
                known = _stands_in(reach, home, value) if home.names.function(value) in reach.reachable else None
                if known is not None:
                    return StandIn(node, f"`{home.names.module.code_for_node(value)}`", known)
    return None


def _stands_in(reach: Reach, unit: Unit, value: cst.BaseExpression, depth: int = 3) -> bool | None:
    """Whether what a call is given is known to hold no loader; None where it may hold one, or where nobody can tell
    what it is."""
    state = reach.state
    if isinstance(value, cst.Name):
        values = plain_values(unit.names, value) if depth else []
        found = [_stands_in(reach, unit, one, depth - 1) for one in values]
        return None if None in found or not found else all(found)
    if not isinstance(value, (*_LITERALS, cst.Call)):
        return None
    nodes = [*descendants(value)]
    called = [f for node in nodes if isinstance(node, cst.Call) for f in reach.called(node)]
    inside = [node for function in called for code in reach.below(function) for node in reach.own(code)]
    parts = [node for node in (*nodes, *inside) if node in state.values]
    if any(origins(members(state, state.values[part]), Role.LOADER) for part in parts):
        return None
    if not isinstance(value, cst.Call):
        return True
    names = outside_names(state.calls[value]) if value in state.calls else []
    if called:
        return any(isinstance(node, cst.Yield) for node in inside)
    return method_name(value) in _BUILTINS or any(transfer(name, Reshape) is not None for name in names)


_LITERALS = (cst.List, cst.Tuple, cst.ListComp, cst.GeneratorExp)
_BUILTINS = frozenset({"zip", "map", "enumerate", "list", "tuple", "iter"})


def _iterates_alone(reach: Reach, made: Instance) -> bool:
    """Whether an object can be iterated, and no loader is in it."""
    method = made.klass.method("__iter__") or made.klass.method("__getitem__")
    if method is None:
        return False
    keeps = any(thing is made and origins(held, Role.LOADER) for thing, held in reach.state.fields())
    code = (node for function in reach.below(method.node) for node in reach.own(function))
    return not keeps and not any(node in reach.state.loaders or _draws_from_loader(reach, node) for node in code)


def _draws_from_loader(reach: Reach, node: cst.CSTNode) -> bool:
    """``iter(loader)``, ``next(batches)``."""
    given = [arg.value for arg in node.args] if isinstance(node, cst.Call) else []
    return any(origins(reach.state.values.get(value), Role.LOADER) for value in given)


def _draws(state: State, call: cst.Call) -> bool:
    """``super().__iter__()``, ``DataLoader.__iter__(self)``."""
    func = call.func
    return isinstance(func, cst.Attribute) and func.attr.value in _DRAWS and _is_torchs(state, func.value)


def _is_torchs(state: State, node: cst.BaseExpression) -> bool:
    """Whether an expression is a loader as its base classes see it, or a class of loaders."""
    if isinstance(node, cst.Call) and method_name(node) == "super":
        return True
    held = state.values.get(node)
    return any(
        (isinstance(t, External) and questions.constructed(t.qualified) is Role.LOADER)
        or (isinstance(t, Klass) and t.role is Role.LOADER)
        for t in (held.things if held is not None else ())
    )
