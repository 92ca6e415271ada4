"""Models and optimizers are prepared together: at each definition, before the training, in the order of the names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ..analysis.dataflow.values import CallRecord, Unit, origins
from ..analysis.syntax.definitions import unshadowed
from ..analysis.syntax.scopes import Binding
from ..analysis.syntax.walk import descendants
from ..analysis.training.training import method_name, whole
from ..facts.roles import Origin, Role
from .program import EmittedProgram
from .violation import CodePlace, Violation


def together(program: EmittedProgram) -> Iterator[Violation]:
    """Each optimizer that steps is prepared, and so is each model whose parameters it holds."""
    for record in program.training.steps if program.accelerated else ():
        for optimizer in origins(record.receiver, Role.OPTIMIZER):
            prepare = program.preparing(optimizer)
            if prepare is None and _is_shown_only(program, optimizer):
                continue
            if prepare is None:
                words = "this optimizer steps, but it is never prepared"
                yield Violation("optimizer-prepared", program.at(record), words, program.made(optimizer))
                continue
            for model in _models(program, optimizer):
                if program.preparing(model) is None:
                    words = "the optimizer is prepared here, but a model whose parameters it holds is not"
                    yield Violation("model-prepared", program.at(prepare), words, program.made(model))


def _is_shown_only(program: EmittedProgram, origin: Origin) -> bool:
    """Whether the variable of a thing has another value wherever it is trained."""
    unit = program.unit_of(origin.node)
    assign = unit.names.parents.get(origin.node) if unit is not None else None
    if unit is None or not isinstance(assign, cst.Assign) or not isinstance(assign.targets[0].target, cst.Name):
        return False
    name = assign.targets[0].target
    binding = unit.names.binding(name)
    return binding is not None and not _trains(program, unit, binding, name)


def _models(program: EmittedProgram, optimizer: Origin) -> list[Origin]:
    """The whole models whose parameters an optimizer holds; of a name that was bound twice, only the last."""
    held = origins(program.state.related.get(optimizer), Role.PARAMETERS)
    models = [p.source for p in held if p.source is not None and p.source.role is Role.MODEL]
    unit = program.unit_of(optimizer.node)
    if unit is not None:
        models = [model for model in models if not program.replaced(unit, optimizer.node, model)]
    return list(dict.fromkeys(whole(program.state, model) for model in models))


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
    steps = {record.node for record in program.training.steps}
    for read in binding.reads:
        for call in unit.names.ancestors(read):
            if call in steps or (isinstance(call, cst.Call) and program.steps_below(call)):
                if definition in unshadowed(unit.names, binding, read):
                    return True
    return False


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


def ordered(program: EmittedProgram) -> Iterator[Violation]:
    """The results of ``prepare`` are assigned to the names of its arguments, in the same order."""
    for record in program.prepares:
        assign = record.unit.names.parents.get(record.node)
        if method_name(record.node) != "prepare" or not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
            continue
        code = record.unit.names.module.code_for_node
        target = assign.targets[0].target
        names = [code(e.value) for e in target.elements] if isinstance(target, cst.Tuple) else [code(target)]
        given = [code(argument.value) for argument in record.node.args]
        if any(argument.star or argument.keyword for argument in record.node.args):
            continue
        if len(given) > 1 and isinstance(target, cst.Tuple) and len(names) != len(given):
            words = f"`prepare` returns {len(given)} things, but {len(names)} names take them"
            yield Violation("prepare-order", program.at(record), words)
        elif sorted(names) == sorted(given) and names != given:
            words = "`prepare` returns what it is given in the same order, but the names that take it are in another"
            yield Violation("prepare-order", program.at(record), words)


def early(program: EmittedProgram) -> Iterator[Violation]:
    """Models and optimizers are prepared before the loop that trains them."""
    for loop in program.training.train_loops:
        unit = program.unit_of(loop)
        for record in program.prepares:
            if (
                unit is not None
                and record.unit is unit
                and unit.names.function(loop) is unit.names.function(record.node)
            ):
                if _follows(unit, loop, record) and _steps(program, loop, record):
                    words = "this is prepared only after a loop that trains it"
                    yield Violation("prepared-late", program.at(record), words, CodePlace(unit, loop))
    for record in program.prepares:
        if (call := _trained_before(program, record)) is not None:
            words = "this is prepared only after a call that trains it"
            yield Violation("prepared-late", program.at(record), words, program.at(call))


def _trained_before(program: EmittedProgram, record: CallRecord) -> CallRecord | None:
    """An earlier call of the same code that is given something of what a call prepares, and steps an optimizer."""
    names = record.unit.names
    taken = {
        o for a in record.node.args for o in origins(program.state.values.get(a.value), Role.MODEL, Role.OPTIMIZER)
    }
    code, place = names.function(record.node), names.order(record.node)
    for call, other in program.state.calls.items():
        if other.unit is not record.unit or names.function(call) is not code or names.order(call) >= place:
            continue
        same = (arg.value for arg in call.args if not _bound_between(record.unit, arg.value, call, record.node))
        given = {o for value in same for o in origins(program.state.values.get(value))}
        if not taken.isdisjoint(given) and program.steps_below(call):
            return other
    return None


def _bound_between(unit: Unit, value: cst.BaseExpression, first: cst.CSTNode, last: cst.CSTNode) -> bool:
    """Whether a variable is bound anew between two places, so that it may hold something else at the second."""
    binding = unit.names.binding(value) if isinstance(value, cst.Name) else None
    order = unit.names.order
    return binding is not None and any(order(first) < order(d) < order(last) for d in binding.definitions)


def _follows(unit: Unit, loop: cst.CSTNode, record: CallRecord) -> bool:
    around = next(iter(reversed(list(unit.names.enclosing(loop, cst.For, cst.While)))), loop)
    return unit.names.order(record.node) > unit.names.end(around)


def _stepped(program: EmittedProgram, step: CallRecord) -> list[Origin]:
    """The optimizers that a call can step."""
    if isinstance(step.node.func, cst.Attribute):
        held = program.held(step.unit, step.node.func.value)
        return [origin for origin in held if origin.role is Role.OPTIMIZER]
    return origins(step.receiver, Role.OPTIMIZER)


def _steps(program: EmittedProgram, loop: cst.CSTNode, record: CallRecord) -> bool:
    unit = record.unit
    stepped = {
        optimizer
        for node in program.reach.runs(loop, unit)
        if isinstance(node, cst.Call) and (call := program.state.calls.get(node)) in program.training.steps and call
        for optimizer in _stepped(program, call)
    }
    mine = {o for o, by in program.prepared.items() if by is record}
    return not stepped.isdisjoint(mine)
