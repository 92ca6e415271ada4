"""Several things that are one for the analysis: what one place makes in several calls, or in the turns of a loop."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_binding import argument_for
from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.values import State, origins
from ..analysis.syntax.definitions import plain_values, unpacked, unshadowed
from ..analysis.syntax.walk import descendants, nodes_in
from ..analysis.training.training import Training
from ..facts.roles import Origin, Role
from ..facts.torch_api import questions
from .imported_tables import imported_entries, in_table
from .prepare_position import Held
from .prepared_names import trains, uses_in


def all_held(
    state: State, reach: Reach, training: Training, divided: bool, code: Code | None, held: Held | None
) -> list[Held]:
    """
    The variables that hold a thing, or one of several things that are made in one place: ``train, test = loaders()`` of
    a list whose places are not known, ``train = loaders["train"]`` and ``test = loaders["test"]`` of a loop's loaders.

    None of them is left out, for nobody can tell which holds which. ``divided``: one of them stays whole, and those
    that the training itself iterates are meant; none where that cannot be told.
    """
    if code is None or held is None:
        return []
    unit = reach.unit(code)
    if in_table(held):
        entries = imported_entries(reach, code, held.origin, iter(uses_in(state, reach, training, held.origin)))
        return [] if divided else entries
    found = [*_made_anew(reach, training, code, held), *_held_beside(state, reach, code, held)]
    if len(found) == 1 or not divided:
        return found
    loops = (loop for loop in training.train_loops if isinstance(loop, cst.For) and loop in unit.names.parents)
    read = {unit.names.module.code_for_node(n) for loop in loops for n in descendants(loop.iter)}
    return [thing for thing in found if thing.name in read]


def _made_anew(reach: Reach, training: Training, code: Code, held: Held) -> Iterator[Held]:
    """
    A variable, once for each time that it gets another thing of one kind: ``model, optimizer = build()``, trained, and
    the same line again. Definitions between which nothing is trained are those of one thing.
    """
    unit = reach.unit(code)
    order = unit.names.order
    trained = [order(loop) for loop in training.train_loops if unit.names.function(loop) is code]
    calls = (call for call in unit.names.calls if unit.names.function(call) is code)
    trained += [order(call) for call in calls if any(trains(reach, training, f) for f in reach.called(call))]
    definitions = sorted(held.definitions, key=order)
    several: list[list[cst.CSTNode]] = []
    for definition in definitions:
        assign = next(unit.names.enclosing(definition, cst.Assign), None)
        made = isinstance(assign, cst.Assign) and _makes(reach, assign.value, held.origin)
        before = several[-1][-1] if several else None
        if before is None or (made and any(order(before) < at < order(definition) for at in trained)):
            several.append([])
        several[-1].append(definition)
    yield from (Held(held.origin, held.name, part) for part in several or [held.definitions])


def _makes(reach: Reach, value: cst.BaseExpression, origin: Origin) -> bool:
    """Whether a call makes a thing, and does not only hand it back."""
    functions = reach.called(value) if isinstance(value, cst.Call) else []
    return any(
        reach.unit(code).names.function(origin.place) is code
        for f in functions
        for code in reach.below(f)
        if origin.place in reach.unit(code).names.parents
    )


def _held_beside(state: State, reach: Reach, code: Code, held: Held) -> Iterator[Held]:
    """The other variables that are given such a thing: unpacked with it, looked up where it was looked up, or made by
    another call of the function that made it."""
    unit, several = reach.unit(code), one_of_several(reach, held.origin)
    made = {next(unit.names.enclosing(definition, cst.Assign), None) for definition in held.definitions}
    anew = any(isinstance(assign, cst.Assign) and _is_new(state, reach, assign, held) for assign in made)
    for assign in unit.names.every(cst.Assign):
        if unit.names.function(assign) is not code:
            continue
        called = anew and assign not in made and _is_new(state, reach, assign, held)
        other = called or (several and _looks_up(assign.value))
        for target in (each.target for each in assign.targets):
            parts = [e.value for e in target.elements] if isinstance(target, (cst.Tuple, cst.List)) else [target]
            names = [unit.names.module.code_for_node(part) for part in parts]
            if (len(parts) > 1 and held.name in names) or other:
                for part, name in zip(parts, names, strict=True):
                    if name != held.name and held.origin in origins(state.slot(part), held.origin.role):
                        yield Held(held.origin, name, [part])


def _is_new(state: State, reach: Reach, assign: cst.Assign, held: Held) -> bool:
    """Whether a model or an optimizer comes from another call of a function that makes it: ``second = build()``."""
    call = _making(assign.value)
    if held.origin.role is Role.LOADER or not isinstance(call, cst.Call) or not reach.called(call):
        return False
    return not any(held.origin in origins(state.values.get(arg.value)) for arg in call.args)


def _making(value: cst.BaseExpression) -> cst.BaseExpression:
    """The call that makes something, without the methods that give it on: ``build().to(device)``."""
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if value.func.attr.value not in questions.keeps_module():
            break
        value = value.func.value
    return value


def _looks_up(value: cst.BaseExpression) -> bool:
    """``loaders["val"]``, ``loaders.get("val")``."""
    call = isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value
    return isinstance(value, cst.Subscript) or call in ("get", "pop")


def one_of_several(reach: Reach, loader: Origin) -> bool:
    """Whether each turn of a loop makes such a loader, ``for split in splits:``: those of training and test differ."""
    unit = next((unit for unit in reach.units if loader.place in unit.names.parents), None)
    return unit is not None and bool(reach.loops(loader.place, unit))


def made_again(state: State, reach: Reach, home: Code, there: list[Held], optimizer: Origin) -> Held | None:
    """
    The variable whose parameters an optimizer gets, where a call of its own has made that model: ``student = build()``,
    here or where this code is called.

    For the analysis it is the model that the same function has made for ``home``, where it is known as ``there``, and
    where alone it would be prepared.
    """
    model = there[0].origin
    unit = reach.unit_of(optimizer.node, reach.units[0])
    code = unit.names.function(optimizer.node)
    for name in _names_of(reach, optimizer):
        binding = unit.names.binding(name)
        if binding is None or binding.scope.function.node is not code or model not in origins(state.values.get(name)):
            continue
        seen = unshadowed(unit.names, binding, name)
        here = [d for d in seen if isinstance(d, cst.Param) or unit.names.function(d) is code]  # not by `global`
        made: list[cst.CSTNode] = [d for d in here if _has_made(reach, d, model, home)]
        handed = _handed(state, reach, code, Held(model, binding.name, here))
        others = {node for one in there for node in (*one.definitions, *_handed(state, reach, home, one))}
        if made or any(makes and node not in others for node, makes in handed.items()):
            return Held(model, binding.name, made or here)
    return None


def _handed(state: State, reach: Reach, code: Code, held: Held) -> dict[cst.CSTNode, bool]:
    """What calls hand over for the parameter that holds a thing: the definitions of variables, each with whether it is
    a call that makes the thing, and such calls themselves."""
    unit = reach.unit(code)
    params = [d for d in held.definitions if isinstance(d, cst.Param)]
    if not isinstance(code, cst.FunctionDef) or len(params) != 1:
        return {}
    found: dict[cst.CSTNode, bool] = {}
    for site in reach.sites(code):
        given, above = argument_for(unit, code, params[0], state.calls[site]), reach.unit_of(site, unit)
        binding = above.names.binding(given) if isinstance(given, cst.Name) else None
        if isinstance(given, cst.Name) and binding is not None:
            for definition in unshadowed(above.names, binding, given):
                value = unpacked(above.names, definition)
                found[definition] = value is not None and _makes(reach, _making(value), held.origin)
        elif given is not None:
            found[given] = _makes(reach, _making(given), held.origin)
    return found


def _names_of(reach: Reach, optimizer: Origin) -> list[cst.Name]:
    """The names in what an optimizer is built with, and in the values of those that are variables."""
    unit = reach.unit_of(optimizer.node, reach.units[0])
    found = list(nodes_in(optimizer.node, cst.Name))
    behind = [
        value for name in found if unit.names.binding(name) is not None for value in plain_values(unit.names, name)
    ]
    return [*found, *(name for value in behind for name in nodes_in(value, cst.Name))]


def _has_made(reach: Reach, definition: cst.CSTNode, model: Origin, home: Code) -> bool:
    """Whether a variable is given a model by a call that makes it, and does not come to the code that prepares it."""
    unit = reach.unit_of(definition, reach.units[0])
    value = unpacked(unit.names, definition)
    call = _making(value) if value is not None else None
    if not isinstance(call, cst.Call) or not _makes(reach, call, model):
        return False
    return not any(home in reach.below(function) for function in reach.called(call))
