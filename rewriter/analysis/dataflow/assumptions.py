"""Roles that the user vouches for: ``--assume model=net``, ``--assume loader=self.loader``."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ...facts.roles import Origin, Role
from ..syntax.definitions import bindings_value
from ..syntax.scopes import Binding
from .expressions import assign
from .solver import Slot
from .values import State, Unit, origins


def vouched(state: State, assume: Iterable[tuple[str, str]]) -> None:
    """
    Let what is called by a name have its role, wherever the name is given to something; the program was solved before.

    A parameter of that name is what the function is called with; only where that is not known it is vouched for, too.
    Whoever names a model says that the optimizers hold its parameters of which nothing is known.
    """
    vouches = [(Role(role), name) for role, name in assume]
    named: dict[Origin, None] = {}
    for role, name in vouches:
        for unit in state.units.values():
            if "." in name:
                named.update(dict.fromkeys(_attributes(state, unit, role, name)))
                continue
            for scope in unit.names.scopes.values():
                if name in scope.bindings:
                    named.update(dict.fromkeys(_given(state, unit, role, name, scope.bindings[name])))
    state.solver.run()
    for role, name in vouches:
        for binding in _parameters(state, name):
            if not origins(state.binding(binding), role):
                origin = _origin(state, role, name, next(iter(binding.reads), binding.definitions[0]))
                named[origin] = None
                state.solver.add(state.binding(binding), origin)
                state.solver.run()
    models = [origin for origin in named if origin.role is Role.MODEL]
    if models:
        _optimized(state, models)
        state.solver.run()


def _optimized(state: State, models: Iterable[Origin]) -> None:
    made = (origin for record in state.calls.values() for origin in origins(record.result, Role.OPTIMIZER))
    for optimizer in dict.fromkeys(made):
        held = state.related.setdefault(optimizer, Slot())
        if not origins(held, Role.PARAMETERS):
            for model in models:
                because = "parameters of the model that was named"
                state.solver.add(held, state.origin(Role.PARAMETERS, optimizer.node, because, "", model))


def _origin(state: State, role: Role, name: str, node: cst.CSTNode) -> Origin:
    return state.origin(role, node, f"assumed: --assume {role.value}={name}", "assumed")


def _known(slot: Slot, role: Role) -> list[Origin]:
    """What a variable holds of a role, where it holds nothing else."""
    held = origins(slot)
    return held if all(origin.role is role for origin in held) else []


def _given(state: State, unit: Unit, role: Role, name: str, binding: Binding) -> Iterable[Origin]:
    """Whatever statement gives a variable its value gives it the role."""
    if binding.definitions and all(isinstance(node, cst.Param) for node in binding.definitions):
        return _known(state.binding(binding), role)
    if known := _known(state.binding(binding), role):
        return known
    origin = _origin(state, role, name, binding.definitions[0] if binding.definitions else unit.names.module)
    state.solver.add(state.binding(binding), origin)
    _assigned(state, unit, [node for node in binding.definitions if isinstance(node, cst.Name)], origin)
    for value in bindings_value(unit.names, binding):
        state.solver.add(
            state.slot(value), origin
        )  # an item of something: what is prepared later is known by its value
    return [origin]


def _attributes(state: State, unit: Unit, role: Role, name: str) -> Iterable[Origin]:
    """The same for an attribute, and wherever it is read and nothing is known of it."""
    last, code = name.rpartition(".")[2], unit.names.module.code_for_node
    found = [n for n in state.values if isinstance(n, cst.Attribute) and n.attr.value == last]
    named = [n for n in found if n in unit.names.parents and code(n) == name]
    known = [origin for node in named for origin in _known(state.slot(node), role)]
    if not named:
        return []
    targets = [node for node in named if isinstance(unit.names.parents[node], cst.AssignTarget)]
    if not known:
        known = [_origin(state, role, name, (targets or named)[0])]
        _assigned(state, unit, targets, known[0])
    for node in named:
        for origin in known if node not in targets and not origins(state.slot(node)) else ():
            state.solver.add(state.slot(node), origin)
    return known


def _assigned(state: State, unit: Unit, targets: Iterable[cst.CSTNode], origin: Origin) -> None:
    value = Slot()
    state.solver.add(value, origin)
    for target in targets:
        assign(state, unit, target, value)


def _parameters(state: State, name: str) -> list[Binding]:
    """The parameters of a name, those of functions that nobody calls first."""
    found: list[tuple[bool, Binding]] = []
    for unit in state.units.values():
        for scope in unit.names.scopes.values():
            binding = scope.bindings.get(name)
            if binding is not None and any(isinstance(node, cst.Param) for node in binding.definitions):
                found.append((bool(state.sites.get(scope.node)), binding))
    return [binding for _, binding in sorted(found, key=lambda each: each[0])]
