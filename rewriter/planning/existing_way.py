"""The way of an accelerator that the script has: the code that knows it by its name, or by the object that keeps it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.values import Unit, origins
from ..analysis.syntax.definitions import attribute_assignments
from ..analysis.syntax.scopes import ScopeKind
from ..analysis.syntax.walk import nodes_in
from ..facts.roles import Role
from .accelerator_path import Way
from .holders import base_call, receiver
from .program import ProgramFacts


def existing_way(program: ProgramFacts) -> Way:
    """Which code the script's own accelerator reaches."""
    way = Way()
    early = set(_before_kept(program))
    for unit in program.reach.units:
        for code, scope in unit.names.scopes.items():
            if scope.kind in (ScopeKind.FUNCTION, ScopeKind.MODULE) and code in program.reach.reachable:
                binding = scope.lookup(program.name)
                if binding is not None and origins(program.state.binding(binding), Role.ACCELERATOR):
                    way.reaches.add(code)
                elif code not in early and (kept := _kept_by(program, unit, code)) is not None:
                    way.reaches.add(code)
                    way.spelled[code] = kept
    return way


def _before_kept(program: ProgramFacts) -> Iterator[Code]:
    """What the constructor of a base class runs, where the object keeps the accelerator only after that."""
    reach = program.reach
    for unit in reach.units:
        for init in unit.names.functions:
            base = base_call(init) if isinstance(init, cst.FunctionDef) else None
            if base is None or not isinstance(init, cst.FunctionDef) or init.name.value != "__init__":
                continue
            kept = cst.Attribute(cst.Name(receiver(init)), cst.Name(program.name))
            stores = [a for a in attribute_assignments(unit.names, kept) if unit.names.function(a) is init]
            if stores and all(unit.names.order(base) < unit.names.order(store) for store in stores):
                calls = nodes_in(base, cst.Call)
                yield from (code for call in calls for f in reach.called(call) for code in reach.below(f))


def _kept_by(program: ProgramFacts, unit: Unit, code: Code) -> str | None:
    """What a method calls the object that keeps the accelerator."""
    method = program.holders.method(code)
    if method is None:
        return None
    name = receiver(method[0])
    holding = program.state.binding(unit.names.scopes[method[0]].bindings[name]).things
    kept = any(origins(program.state.field(thing, program.name), Role.ACCELERATOR) for thing in holding)
    return name if kept else None
