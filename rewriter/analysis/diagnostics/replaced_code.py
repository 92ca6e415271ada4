"""What a program replaces while it runs, and not in its text: methods of classes and objects, functions of packages,
names of the file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.diagnostics import ReplacedMethod, SetByName
from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from ...facts.torch_api.loading import row
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.solver import Slot, Thing
from ..dataflow.values import External, Function, Klass, State, Unit
from ..syntax.nodes import dotted
from ..syntax.own_names import set_by_name
from ..syntax.walk import descendants, nodes_in


class _Replaced(NamedTuple):
    holder: cst.BaseExpression
    name: str
    value: cst.BaseExpression


def replaced_code(state: State, unit: Unit, reach: Reach) -> Iterator[Reason]:
    """What was read is not what runs: one finding for each method, and one for the names of the file."""
    told: set[str] = set()
    named = False
    for node in unit.names.every(cst.Assign, cst.Call):
        if unit.names.function(node) not in reach.reachable:
            continue
        for one in _attributes(node):
            method = f"{dotted(one.holder)}.{one.name}"
            if method not in told and _is_method(state, one):
                told.add(method)
                yield ReplacedMethod(node, method, of_module=_is_module(state.values[one.holder]))
        name = set_by_name(node)
        if name is not None and not named:
            named = True
            yield SetByName(node, name)


def _attributes(node: cst.CSTNode) -> Iterator[_Replaced]:
    """``Net.forward = f``, ``setattr(Net, "forward", f)``."""
    if isinstance(node, cst.Assign):
        for target in node.targets:
            if isinstance(target.target, cst.Attribute):
                yield _Replaced(target.target.value, target.target.attr.value, node.value)
    elif isinstance(node, cst.Call) and method_name(node) == "setattr" and len(node.args) == 3:
        holder, name, value = (arg.value for arg in node.args)
        if isinstance(name, cst.SimpleString) and isinstance(name.evaluated_value, str):
            yield _Replaced(holder, name.evaluated_value, value)


def _is_method(state: State, one: _Replaced) -> bool:
    """Whether a function takes the place of a method that is read; what wraps the old one does what that does."""
    slot = state.values.get(one.holder)
    old = f"{dotted(one.holder)}.{one.name}"
    if slot is None or any(dotted(part) == old for part in nodes_in(one.value, cst.Attribute)):
        return False
    if not any(_has_method(state, thing, one.name) for thing in slot.things):
        return False
    return isinstance(one.value, cst.Lambda) or any(map(partial(_is_function, state), _parts(one.value)))


def _is_module(holder: Slot) -> bool:
    """Whether something may be a module of a package: no class, which has a name with a capital."""
    return any(isinstance(t, External) and t.qualified.rpartition(".")[2].islower() for t in holder.things)


def _parts(value: cst.BaseExpression) -> Iterator[cst.CSTNode]:
    """A value, and what is in a call: ``partial(f, model)``, ``MethodType(f, model)``, ``f.__get__(model)``."""
    yield value
    yield from descendants(value) if isinstance(value, cst.Call) else ()


def _is_function(state: State, node: cst.CSTNode) -> bool:
    slot = state.values.get(node)
    return slot is not None and any(isinstance(thing, Function) for thing in slot.things)


def _has_method(state: State, thing: Thing, name: str) -> bool:
    """Whether this method of a thing is read, or taken for known: of the program's classes, of torch's."""
    if isinstance(thing, External):
        runs = questions.constructed(thing.qualified) is not None and name in ("forward", "step", "__len__")
        return runs or (thing.qualified.startswith("torch.") and row(f"{thing.qualified}.{name}") is not None)
    klass = thing if isinstance(thing, Klass) else state.klass.get(thing) if isinstance(thing, Origin) else None
    klass = klass if klass is not None else getattr(thing, "klass", None)
    if isinstance(klass, Klass) and klass.method(name) is not None:
        return True
    return isinstance(thing, Origin) and thing.role in (Role.MODEL, Role.CRITERION) and name == "forward"
