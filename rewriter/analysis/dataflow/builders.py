"""
What a configuration names and a registry makes: ``MODELS.build(cfg.model)``, ``build_from_cfg(cfg, MODELS)``.

A function that gives what it makes of something looked up (``return self._classes[name](**cfg)``) makes one thing here
and another there, so that it is looked through at each of its calls. What a call gives is one of the classes whose
decorators name its registry; where there are none to be seen, its use may tell what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import libcst as cst

from ...facts.roles import Origin
from ..syntax.nodes import FunctionNode, parameters, positional
from .call_binding import EvaluatedCall
from .calls import make
from .registries import searched
from .solver import Thing
from .values import Bound, External, Function, Instance, Klass, State, Unit

_ROUNDS = 4
"""Builders that build builders: nobody stacks more."""


class _Builder(NamedTuple):
    """A function that gives what it makes of something looked up."""

    made: cst.Call
    """The call in it that makes the thing."""
    registry: str | None
    """The parameter that it looks things up in, where that is one."""


class _Site(NamedTuple):
    """A call that makes something looked up, and gives it."""

    call: cst.Call
    registry: cst.BaseExpression | None
    """Where it is looked up."""
    taken: frozenset[str] = frozenset()
    """The keywords that the builder takes for itself."""


def set_aside(state: State) -> None:
    """Note the calls of functions that are looked up: their results are known only after the first solution."""
    for unit in state.units.values():
        state.aside.update(dict.fromkeys(call for call in unit.names.calls if any(_tables(unit, call))))


def build(state: State) -> None:
    """Let the calls of builders hold what they give, and solve the program again, once it was solved."""
    _register_called(state)
    builders = _builders(state)
    for made in list(state.aside):
        unit = state.calls[made].unit if made in state.calls else None
        root = _looked_up(state, unit, made, builders) if unit is not None else None
        held = state.slot(root).things if root is not None else {}
        if not any(state.registered(registry).things for registry in held):
            start = state.aside.pop(made)
            if start is not None:
                start()
    state.solver.run()
    for _ in range(_ROUNDS):
        fresh = [site for site in _sites(state, _builders(state)) if not state.calls[site.call].result.things]
        for site in fresh:
            _give(state, site)
        if not fresh:
            return
        state.solver.run()


def _register_called(state: State) -> None:
    """``OPTIMIZERS.register(torch.optim.SGD)``, ``OPTIMIZERS.register_module()(cls)``."""
    for call in list(state.calls):
        named = call.func.func if isinstance(call.func, cst.Call) else call.func
        if isinstance(named, cst.Attribute) and named.attr.value.startswith("register"):
            for registry in list(state.slot(named.value).things):
                for arg in call.args:
                    for thing in list(state.slot(arg.value).things):
                        if isinstance(thing, (Klass, Function, External)):
                            _registered(state, registry, thing)


def _builders(state: State) -> dict[Function, _Builder]:
    found: dict[Function, _Builder] = {}
    for _ in range(_ROUNDS):
        fresh = {
            function: builder
            for unit in state.units.values()
            for node in unit.names.functions
            if (function := unit.function(node)) not in found and isinstance(node, cst.FunctionDef)
            if (builder := _builder(state, function, found)) is not None
        }
        if not fresh:
            break
        found.update(fresh)
    return found


def _builder(state: State, function: Function, known: dict[Function, _Builder]) -> _Builder | None:
    unit, own = function.unit, {p.name.value for p in parameters(function.node)}
    for made in _made(unit, function.node):
        if made not in state.calls:
            continue
        looked = _looked_up(state, unit, made, known)
        if looked is not None:
            return _Builder(made, looked.value if looked.value in own else None)
        for inner, bound in _called(state, made):
            if inner in known:
                given = _root(_argument(made, inner, known[inner].registry, bound))
                return _Builder(made, given.value if given is not None and given.value in own else None)
    return None


def _made(unit: Unit, function: FunctionNode) -> Iterator[cst.Call]:
    """The calls whose results a function returns."""
    for returned in unit.names.returns.get(function, ()):
        for made in _values(unit, returned.value) if returned.value is not None else ():
            if isinstance(made, cst.Call):
                yield made


def _looked_up(state: State, unit: Unit, call: cst.Call, builders: Mapping[Function, _Builder]) -> cst.Name | None:
    """The name in which a call looks up what it calls, where nothing is known of that."""
    if call not in state.aside and call.func in state.values and state.values[call.func].things:
        return None
    return next(
        (
            root
            for root, found in _tables(unit, call)
            if not (
                isinstance(found, cst.Call)
                and found in state.calls
                and any(inner in builders for inner, _ in _called(state, found))
            )
        ),
        None,
    )


def _tables(unit: Unit, call: cst.Call) -> Iterator[tuple[cst.Name, cst.BaseExpression]]:
    """The names in which a call may look up what it calls, each with the expression that does so."""
    for found in _values(unit, call.func):
        root = _root(found) if isinstance(found, (cst.Subscript, cst.Call)) else None
        if root is not None:
            yield root, found


def _values(unit: Unit, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What an expression is: itself, or of a variable whatever its function assigns to it."""
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    yield node
    for definition in binding.definitions if binding is not None else ():
        target = unit.names.parents.get(definition)
        assign = unit.names.parents.get(target) if isinstance(target, cst.AssignTarget) else None
        if isinstance(assign, cst.Assign):
            yield assign.value


def _root(node: cst.CSTNode | None) -> cst.Name | None:
    """The name that an expression starts from: ``self`` of ``self.table[kind]`` and of ``self.get(kind)``."""
    while isinstance(node, (cst.Attribute, cst.Subscript, cst.Call)):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node if isinstance(node, cst.Name) else None


def _called(state: State, call: cst.Call) -> Iterator[tuple[Function, bool]]:
    """The functions of the program that a call runs, and whether the first parameter is the object of the call."""
    for thing in state.calls[call].callees:
        if isinstance(thing, Function):
            yield thing, False
        elif isinstance(thing, Bound):
            receiver = thing.receiver
            klass = receiver if isinstance(receiver, Klass) else getattr(receiver, "klass", None)
            klass = state.klass.get(receiver) if isinstance(receiver, Origin) else klass
            method = klass.method(thing.name) if isinstance(klass, Klass) else None
            if method is not None:
                yield method, not method.decorated("staticmethod")


def _argument(call: cst.Call, function: Function, name: str | None, bound: bool) -> cst.BaseExpression | None:
    """What a call gives for a parameter."""
    places = [p.name.value for p in positional(function.node)]
    if name is None:
        return None
    if bound and places[:1] == [name]:
        return call.func.value if isinstance(call.func, cst.Attribute) else call.func
    places = places[1:] if bound else places
    plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return arg.value
    index = places.index(name) if name in places else len(plain)
    return plain[index] if index < len(plain) else None


def _sites(state: State, builders: dict[Function, _Builder]) -> Iterator[_Site]:
    """
    The calls at which builders are looked through: the one that makes the thing where that is the same each time.

    What searches the module that it is handed has been looked through at its calls already.
    """
    generic = {
        function
        for function, builder in builders.items()
        if builder.registry or len(state.sites.get(function.node, ())) > 1 or searched(function) is not None
    }
    passed_on = {builders[function].made for function in generic}
    for call, record in list(state.calls.items()):
        if call in passed_on:
            continue
        for function, bound in _called(state, call):
            if function in generic:
                registry = _argument(call, function, builders[function].registry, bound)
                yield _Site(call, registry, frozenset(p.name.value for p in parameters(function.node)))
        if (looked := _looked_up(state, record.unit, call, builders)) is not None:
            yield _Site(call, looked)


def _give(state: State, site: _Site) -> None:
    """Let a call hold one of the classes of its registry; where none is known, its use may tell what it gives."""
    record = state.calls[site.call]
    found = [(arg, state.slot(arg.value)) for arg in site.call.args]
    given = [(arg, slot) for arg, slot in found if arg.keyword is not None and arg.keyword.value not in site.taken]
    call = EvaluatedCall(state, record.unit, site.call, record.result, given if site.taken else found)
    registries = list(state.slot(site.registry).things) if site.registry is not None else []
    for thing in dict.fromkeys(thing for registry in registries for thing in state.registered(registry).things):
        make(call, thing)
    if not record.result.things:
        name = record.unit.names.module.code_for_node(site.call.func)
        state.solver.add(record.result, state.unknown(site.call, name, record.result))
        call.give_host_values()


def register(state: State, unit: Unit, node: cst.FunctionDef | cst.ClassDef, thing: Thing) -> None:
    """Note the registry of a class or function: ``MODELS`` of ``@MODELS.register_module(name="unet")``; a table that a
    function fills, ``@register``, by what that does."""
    for decorator in node.decorators:
        named = decorator.decorator
        state.solver.watch(state.slot(named), lambda t: _put_in(state, t, thing))
        named = named.func if isinstance(named, cst.Call) else named
        if isinstance(named, cst.Attribute):
            registry = state.slot(named.value)
            state.solver.watch(registry, lambda t: _registered(state, t, thing))


def _put_in(state: State, decorator: Thing, thing: Thing) -> None:
    """A decorator that gives back what it was given has put it somewhere. One that gives something else wraps it."""
    if not isinstance(decorator, Function):
        return
    names, given = decorator.unit.names, next(iter(positional(decorator.node)), None)
    returned = [one.value for one in names.returns.get(decorator.node, ()) if one.value is not None]
    if given is None or not returned:
        return
    binding = names.scopes[decorator.node].bindings[given.name.value]
    if all(isinstance(one, cst.Name) and names.binding(one) is binding for one in returned):
        state.solver.add(state.binding(binding), thing)


def _registered(state: State, registry: Thing, thing: Thing) -> None:
    if isinstance(registry, (Instance, Klass)):
        state.solver.add(state.registered(registry), thing)
