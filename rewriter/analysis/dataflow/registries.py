"""
What configuration names: ``getattr(models, config["arch"])(...)``, ``config.init_obj("opt", torch.optim, params)``,
``models.__dict__[args.arch]()``, ``globals()[args.arch]()``.

The module that is searched decides what is made, not the name: something of ``torch.optim`` is an optimizer, and
something of the program's own module is one of the classes and functions of that module. A function that searches the
module that it is handed is looked through at each of its calls: one call makes a model, the next an optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..syntax.nodes import parameters, positional
from .call_binding import EvaluatedCall
from .modules import slot_of, source_of, stars_of, unit_named, variable
from .solver import Slot, Thing
from .values import Function, Klass, State, Unit

UNNAMED = "Unnamed"
"""Stands for a name that only the run knows."""
TABLE = ".__dict__"
"""For a module's name, the table of its names."""


def looked_up(state: State, asker: Unit, module: str, name: str | None, slot: Slot) -> None:
    """Let a slot hold what a module has under a name; without one, something of that module, by whatever name."""
    found = slot_of(state, f"{module}.{name}") if name is not None else None
    if found is not None:
        state.solver.flow(found, slot)
    elif name is None and unit_named(state, module) is asker:
        own(state, asker, slot)
    elif name is None and unit_named(state, module) is not None:
        plain = _plain(state, unit_named(state, module))
        for member in members_of(state, module):
            state.solver.flow(member, slot, (lambda thing: thing if thing in plain else None) if plain else made)
    else:
        state.solver.add(slot, state.external(f"{module}.{name or UNNAMED}"))


def listed(call: EvaluatedCall, table: str, method: str) -> None:
    """Let a call give what the table of a module's names holds: ``vars(models).items()``, ``table.get(name)``."""
    state, found = call.state, Slot()
    looked_up(state, call.unit, table.removesuffix(TABLE), None, found)
    if method == "get":
        state.solver.flow(found, call.result)
    elif method in ("items", "values"):
        pair = state.sequence(call.node, "pair")
        if not pair.items:
            pair.items.append(Slot())
        given = state.sequence(call.node, method)
        state.solver.flow(found, pair.rest)
        if method == "items":
            state.solver.add(given.rest, pair)
        else:
            state.solver.flow(found, given.rest)
        state.solver.add(call.result, given)


def own(state: State, unit: Unit, slot: Slot) -> None:
    """
    Let a slot hold what a module may find in its own names: ``globals()[args.arch]``, ``eval(args.arch)``.

    Its use tells what it is: those names include losses, schedules and the function that searches.
    """
    state.solver.add(slot, state.external(f"{unit.name}.{UNNAMED}"))


def searched(function: Function) -> str | None:
    """The parameter of which a function calls an attribute, by whatever name, and gives the result; None without."""
    node, names = function.node, function.unit.names
    if not isinstance(node, cst.FunctionDef):
        return None
    for returned in names.returns.get(node, ()):
        made = returned.value
        if not isinstance(made, cst.Call):
            continue
        found = _search(_value(function.unit, made.func))
        if found is not None and any(p.name.value == found for p in parameters(node)):
            return found
    return None


def _value(unit: Unit, node: cst.BaseExpression) -> cst.BaseExpression:
    """What an expression is, or what the one assignment to it says."""
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    if binding is None or len(binding.definitions) != 1:
        return node
    target = unit.names.parents.get(binding.definitions[0])
    assign = unit.names.parents.get(target) if isinstance(target, cst.AssignTarget) else None
    return assign.value if isinstance(assign, cst.Assign) else node


def _search(node: cst.BaseExpression) -> str | None:
    """``module`` of ``getattr(module, name)``, for a name that is not written out."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name) or node.func.value != "getattr":
        return None
    if len(node.args) < 2 or isinstance(node.args[1].value, cst.SimpleString):
        return None
    first = node.args[0].value
    return first.value if isinstance(first, cst.Name) else None


def allowed(unit: Unit, node: cst.Call, name: cst.BaseExpression) -> list[str | None]:
    """The words that a name can be where a condition around a search lists them: ``if kind in ["LSTM", "GRU"]``."""
    asked = unit.names.one_line(name)
    for around, below in unit.names.outwards(node):
        test = around.test if isinstance(around, cst.If) and below is around.body else None
        if not isinstance(test, cst.Comparison) or unit.names.one_line(test.left) != asked:
            continue
        operator, listed = test.comparisons[0].operator, test.comparisons[0].comparator
        if isinstance(operator, cst.Equal):
            entries = [listed]
        elif isinstance(operator, cst.In) and isinstance(listed, (cst.List, cst.Tuple, cst.Set)):
            entries = [entry.value for entry in listed.elements]
        else:
            continue
        if all(isinstance(entry, cst.SimpleString) for entry in entries):
            return [str(entry.evaluated_value) for entry in entries if isinstance(entry, cst.SimpleString)]
    return []


def inside(call: EvaluatedCall) -> bool:
    """Whether a ``getattr`` is the search of such a function: what it finds is known at the function's calls."""
    node = call.unit.names.function(call.node)
    if not isinstance(node, cst.FunctionDef):
        return False
    found = searched(call.unit.function(node))
    return found is not None and found == _search(call.node)


def handed(call: EvaluatedCall, function: Function, bound: bool) -> tuple[Slot, EvaluatedCall] | None:
    """For a call of such a function: what it searches, and the call that it makes of what it finds."""
    name = searched(function)
    if name is None:
        return None
    places = [p.name.value for p in positional(function.node)][1 if bound else 0 :]
    known = {p.name.value for p in parameters(function.node)}
    module: Slot | None = None
    rest: list[tuple[cst.Arg, Slot]] = []
    plain = 0
    for arg, slot in call.args:
        if arg.keyword is None and not arg.star:
            if plain < len(places) and places[plain] == name:
                module = slot
            elif plain >= len(places):
                rest.append((arg, slot))
            plain += 1
        elif arg.keyword is not None and arg.keyword.value == name:
            module = slot
        elif arg.keyword is None or arg.keyword.value not in known:
            rest.append((arg, slot))
    if module is None:
        return None
    return module, EvaluatedCall(call.state, call.unit, call.node, call.result, rest)


def members_of(state: State, module: str) -> Iterator[Slot]:
    """The classes and functions at the top of a module of the program, with those that it imports, by stars too."""
    unit = unit_named(state, module)
    for home in _with_stars(state, unit) if unit is not None else ():
        for name, binding in home.names.scope.bindings.items():
            if all(isinstance(d, (cst.ClassDef, cst.FunctionDef, cst.ImportAlias)) for d in binding.definitions):
                slot = variable(state, home, name)
                if slot is not None:
                    yield slot


def _with_stars(state: State, unit: Unit) -> list[Unit]:
    return [unit, *(home for home, _ in stars_of(state, unit) if home is not None)]


def _plain(state: State, unit: Unit | None) -> set[Thing]:
    """What may be looked up in a module of which no class has a role: the classes and functions that it defines, and
    not what it imports for them; of a package that defines no class, those of the modules that it hands on. Nothing
    where a class has a role, or there is none."""
    if unit is None:
        return set()
    own = [s for s in unit.names.module.body if isinstance(s, cst.ClassDef)]
    imports = unit.names.every(cst.ImportFrom)
    handed = [home for node in imports if (home := unit_named(state, source_of(unit, node))) is not None]
    homes = [unit] if own else dict.fromkeys((unit, *_with_stars(state, unit), *handed))
    tops = [(home, s) for home in homes for s in home.names.module.body]
    classes = [home.classes[s] for home, s in tops if isinstance(s, cst.ClassDef) and s in home.classes]
    if not classes or any(klass.role is not None for klass in classes):
        return set()
    return {*classes, *(home.function(s) for home, s in tops if isinstance(s, cst.FunctionDef))}


def made(thing: Thing) -> Thing | None:
    """Let pass what a configuration may name beside classes that have a role: functions, too."""
    return thing if isinstance(thing, Function) or (isinstance(thing, Klass) and thing.role is not None) else None
