"""Modules of a program seen from each other: what an imported name means, through re-exports and star imports."""

from __future__ import annotations

import libcst as cst

from ...facts.module_paths import resolved
from ..syntax.nodes import import_source
from ..syntax.scopes import Binding
from .solver import Slot
from .values import External, State, Unit


def unit_named(state: State, module: str) -> Unit | None:
    """The module of the program with a full name, or one of its further names."""
    return state.units.get(state.layout.aliases.get(module, module))


def source_of(unit: Unit, statement: cst.ImportFrom) -> str:
    """The full name of the module that a ``from`` import reads."""
    return full(unit, import_source(statement))


def full(unit: Unit, spelled: str) -> str:
    """The full name of a module that is spelled with leading dots, perhaps."""
    found = resolved(unit.place.package, spelled)
    return spelled if found is None else found


def imported(unit: Unit, alias: cst.ImportAlias) -> str:
    """The full name of what an import binds."""
    statement = unit.names.parents[alias]
    name = alias.evaluated_name
    if isinstance(statement, cst.ImportFrom):
        source = source_of(unit, statement)
        return f"{source}.{name}" if source else name
    return name if alias.asname else name.partition(".")[0]


def slot_of(state: State, qualified: str) -> Slot | None:
    """The variable of a module of the program that a full name means, or None."""
    module, _, name = qualified.rpartition(".")
    unit = unit_named(state, module)
    if unit is None or (unit_named(state, qualified) is not None and _is_module_of(unit, name, qualified)):
        return None
    return variable(state, unit, name)


def _is_module_of(package: Unit, name: str, qualified: str) -> bool:
    """Whether a name of a package is its module: nothing there gives it a value, or only ``from . import name``."""
    binding = package.names.scope.bindings.get(name)
    definitions = binding.definitions if binding is not None else ()
    return all(isinstance(d, cst.ImportAlias) and imported(package, d) == qualified for d in definitions)


def variable(state: State, unit: Unit, name: str) -> Slot | None:
    """The slot of what a module calls by a name, its star imports included."""
    binding = unit.names.scope.bindings.get(name)
    return state.binding(binding) if binding is not None else starred(state, unit, name)


def starred(state: State, unit: Unit, name: str) -> Slot | None:
    """What a name of a module means that only its star imports can have brought, the last of them first."""
    candidates: list[str] = []
    for module, owner in stars_of(state, unit):
        if module is None:
            candidates.append(owner)
        elif name in module.names.scope.bindings:
            return state.binding(module.names.scope.bindings[name])
    if not candidates:
        return None
    slot = state.slot_named(f"{unit.name}.{name}")
    for candidate in candidates:
        state.solver.add(slot, state.external(f"{candidate}.{name}"))
    return slot


def stars_of(state: State, unit: Unit) -> list[tuple[Unit | None, str]]:
    """The modules whose names came into a module by stars, through modules of the program: the unit, or the name of
    one outside."""
    found: list[tuple[Unit | None, str]] = []
    seen = {unit}
    pending = [unit]
    while pending:
        here = pending.pop(0)
        for star in reversed(here.names.stars):
            name = full(here, star)
            inner = unit_named(state, name)
            if inner is None:
                found.append((None, name))
            elif inner not in seen:
                seen.add(inner)
                found.append((inner, name))
                pending.append(inner)
    return found


def class_named(state: State, qualified: str) -> tuple[Unit, cst.ClassDef] | str:
    """The class of the program that a full name means, through re-exports; the full name of one outside."""
    for _ in range(12):
        module, _, name = qualified.rpartition(".")
        unit = unit_named(state, module)
        if unit is None:
            return qualified
        found = _definition(state, unit, name)
        if not isinstance(found, str):
            return found
        if found == qualified:
            return qualified
        qualified = found
    return qualified


def _definition(state: State, unit: Unit, name: str) -> tuple[Unit, cst.ClassDef] | str:
    binding = unit.names.scope.bindings.get(name)
    if binding is None:
        for module, owner in stars_of(state, unit):
            if module is None or name in module.names.scope.bindings:
                return f"{owner}.{name}"
        return f"{unit.name}.{name}"
    for definition in reversed(binding.definitions):
        if isinstance(definition, cst.ClassDef):
            return unit, definition
        if isinstance(definition, cst.ImportAlias):
            return imported(unit, definition)
    return f"{unit.name}.{name}"


def taken(state: State, unit: Unit) -> frozenset[str]:
    """The names that other modules, of the program or not, take from one; ``*`` where they take whatever it has."""
    inside = state.once(taken, lambda: _taken_inside(state))
    return frozenset(unit.place.shared) | inside.get(unit.name, set())


def _taken_inside(state: State) -> dict[str, set[str]]:
    """For each module, by its name, the names that the other modules of the program take from it."""
    found: dict[str, set[str]] = {}
    for other in state.units.values():
        for star in other.names.stars:
            source = unit_named(state, full(other, star))
            if source is not None and source is not other:
                found.setdefault(source.name, set()).add("*")
        for scope in other.names.scopes.values():
            for binding in scope.bindings.values():
                for definition in binding.definitions:
                    if isinstance(definition, cst.ImportAlias):
                        module, _, name = imported(other, definition).rpartition(".")
                        source = unit_named(state, module)
                        if source is not None and source is not other:
                            found.setdefault(source.name, set()).add(name)
                        whole = unit_named(state, f"{module}.{name}".lstrip("."))
                        if whole is not None and whole is not other and whole is not source:
                            found.setdefault(whole.name, set()).update(_attributes(other, binding))
    return found


def _attributes(unit: Unit, binding: Binding) -> set[str]:
    """The attributes that are read from a variable: ``torch`` of ``utils.torch``."""
    parents = (unit.names.parents.get(read) for read in binding.reads)
    return {parent.attr.value for parent in parents if isinstance(parent, cst.Attribute)}


def torch_name(state: State, unit: Unit) -> str | None:
    """The name of torch at the module's top level."""
    for binding in unit.names.scope.bindings.values():
        if any(isinstance(t, External) and t.qualified == "torch" for t in state.binding(binding).things):
            return binding.name
    return None
