"""Models and optimizers are prepared together, at each definition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ..analysis.dataflow.callees import method_name, outside_name
from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.values import CallRecord, Unit, origins
from ..analysis.syntax.definitions import unshadowed
from ..analysis.syntax.scopes import Binding
from ..analysis.syntax.walk import descendants, nodes_in
from ..analysis.training.training import held_optimizers
from ..facts.roles import Origin, Role
from ..facts.torch_api import process_calls, questions
from .program import EmittedProgram
from .violation import Violation


def together(program: EmittedProgram) -> Iterator[Violation]:
    """Each optimizer that steps is prepared, and so is each model whose parameters it holds, or the script updates."""
    if not program.accelerated:
        return
    for record in program.training.steps:
        for optimizer in held_optimizers(program.state, program.training, record.receiver):
            prepare = program.preparing(optimizer)
            if prepare is None and _is_shown_only(program, optimizer):
                continue
            if prepare is None:
                words = "this optimizer steps, but it is never prepared"
                yield Violation("optimizer-prepared", program.at(record), words, program.made(optimizer))
                continue
            for model in program.models_of(optimizer):
                if program.preparing(model) is None or _only_another(program, prepare, optimizer, model):
                    words = "the optimizer is prepared here, but a model whose parameters it holds is not"
                    yield Violation("model-prepared", program.at(prepare), words, program.made(model))
    for model in program.updated_by_hand:
        if program.preparing(model) is None:
            words = "this backward pass trains a model that is never prepared"
            yield Violation("model-prepared", program.at(program.training.backwards[0]), words, program.made(model))


def _only_another(program: EmittedProgram, prepare: CallRecord, optimizer: Origin, model: Origin) -> bool:
    """
    Whether the variable whose parameters a prepared optimizer holds is not prepared, but another one is.

    A function that makes several models makes one origin of them all. So their variables are compared.
    """
    unit, names = prepare.unit, prepare.unit.names
    if program.unit_of(optimizer.node) is not unit:
        return False
    code = names.function(prepare.node)
    if names.function(optimizer.node) is not code:
        return False
    mine = {b for name in _names_behind(program, unit, optimizer.node) if (b := names.binding(name)) is not None}
    mine = {b for b in mine if any(model in origins(program.state.values.get(read)) for read in b.reads)}
    by_name = [binding for binding in _prepared_names(program) if binding.scope is names.scopes[code]]
    holding = [b for b in by_name if any(model in origins(program.state.values.get(read)) for read in b.reads)]
    makes = {call for binding in (*mine, *holding) for call in _calls_that_make(program, unit, binding)}
    return bool(mine) and bool(holding) and mine.isdisjoint(by_name) and len(makes) > 1


def _names_behind(program: EmittedProgram, unit: Unit, node: cst.CSTNode) -> list[cst.Name]:
    """The names in an expression, and in the values of those that are variables of the same code."""
    found: list[cst.Name] = []
    pending = list(nodes_in(node, cst.Name))
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.append(name)
        binding = unit.names.binding(name)
        for definition in unshadowed(unit.names, binding, name) if binding is not None else ():
            value = program.value(unit, definition)
            if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
                pending += list(nodes_in(value.func, cst.Name))
    return found


def _calls_that_make(program: EmittedProgram, unit: Unit, binding: Binding) -> Iterator[cst.Call]:
    """The calls that make what a variable holds; those that only give it on, as ``model.train()`` and wrappers do, are
    none."""
    for definition in binding.definitions:
        assign = next(unit.names.enclosing(definition, cst.Assign), None)
        value = assign.value if isinstance(assign, cst.Assign) else None
        while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
            if method_name(value) not in questions.keeps_module():
                break
            value = value.func.value
        record = program.state.calls.get(value) if isinstance(value, cst.Call) else None
        given_on = record is not None and process_calls.same_model(outside_name(record))
        if isinstance(value, cst.Call) and method_name(value) != "prepare" and not given_on:
            yield value


def _is_shown_only(program: EmittedProgram, origin: Origin) -> bool:
    """Whether the variable of a thing has another value wherever it is trained."""
    unit = program.unit_of(origin.node)
    assign = unit.names.parents.get(origin.node) if unit is not None else None
    if unit is None or not isinstance(assign, cst.Assign) or not isinstance(assign.targets[0].target, cst.Name):
        return False
    name = assign.targets[0].target
    binding = unit.names.binding(name)
    if binding is None or _trains(program, unit, binding, name):
        return False
    return any(_trains(program, unit, binding, other) for other in binding.definitions if other is not name)


def each_definition(program: EmittedProgram) -> Iterator[Violation]:
    """If a prepared name gets a new model or optimizer that trains, the new one is prepared as well."""
    for binding, taken in _prepared_names(program).items():
        unit = taken[0][0].unit
        statements = {unit.names.statement(record.node) for record, _ in taken}
        prepared = _behind(program, unit, binding, [name for _, name in taken])
        for definition in binding.definitions:
            if definition in prepared or unit.names.statement(definition) in statements:
                continue
            if _makes(program, unit, definition) and _trains(program, unit, binding, definition):
                words = f"`{binding.name}` is made anew here and trained, but only another one of this name is prepared"
                yield Violation("each-definition", CodePlace(unit, definition), words, program.at(taken[0][0]))


def _makes(program: EmittedProgram, unit: Unit, definition: cst.CSTNode) -> bool:
    """Whether a variable is given a model or an optimizer that is made there, or in a function that is called there."""
    value = program.value(unit, definition)
    assign = next(unit.names.enclosing(definition, cst.Assign), None)
    call = value if value is not None or not isinstance(assign, cst.Assign) else assign.value
    if not isinstance(call, cst.Call):
        return False
    made = origins(program.state.values.get(definition), Role.MODEL, Role.OPTIMIZER)
    if any(origin.node is call for origin in made):
        return True
    given = {o for arg in call.args for o in origins(program.state.values.get(arg.value))}
    return bool(program.reach.called(call)) and not given.intersection(made) and bool(made)


def _behind(program: EmittedProgram, unit: Unit, binding: Binding, reads: Iterable[cst.CSTNode]) -> set[cst.CSTNode]:
    """The definitions that some reads of a variable see, and earlier ones that these use: ``net = net.to(device)``."""
    found: set[cst.CSTNode] = set()
    pending = list(reads)
    while pending:
        for definition in unshadowed(unit.names, binding, pending.pop()):
            if definition not in found:
                found.add(definition)
                value = program.value(unit, definition)
                pending += [n for n in descendants(value) if n in binding.reads] if value is not None else []
    return found


def _trains(program: EmittedProgram, unit: Unit, binding: Binding, definition: cst.CSTNode) -> bool:
    """Whether the object of a definition is stepped, here or in a function that gets it. An optimizer that is only
    created trains nothing."""
    trained = program.state.once((_trains, binding), lambda: set(_trained(program, unit, binding)))
    return definition in trained


def _trained(program: EmittedProgram, unit: Unit, binding: Binding) -> Iterator[cst.CSTNode]:
    """The definitions of a variable whose objects are stepped."""
    steps = {record.node for record in program.training.steps}
    for read in binding.reads:
        calls = (around for around in unit.names.ancestors(read) if isinstance(around, cst.Call))
        if any(call in steps or program.steps_below(call) for call in calls):
            yield from unshadowed(unit.names, binding, read)


def _prepared_names(program: EmittedProgram) -> dict[Binding, list[tuple[CallRecord, cst.Name]]]:
    """The variables that are prepared in the scope that binds them, with each call and its argument."""
    found: dict[Binding, list[tuple[CallRecord, cst.Name]]] = {}
    for record in program.prepares:
        scope = record.unit.names.scopes[record.unit.names.function(record.node)]
        for argument in record.node.args:
            name = argument.value
            binding = record.unit.names.binding(name) if isinstance(name, cst.Name) else None
            if binding is not None and binding.scope is scope and isinstance(name, cst.Name):
                found.setdefault(binding, []).append((record, name))
    return found
