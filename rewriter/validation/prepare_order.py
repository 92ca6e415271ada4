"""What is prepared is prepared before it is trained, and taken by its own names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.kept_loaders import Taken, taken_in
from ..analysis.dataflow.solver import Thing
from ..analysis.dataflow.trails import Trace
from ..analysis.dataflow.values import CallRecord, Mapping, Sequence, Unit, origins
from ..analysis.syntax.definitions import unshadowed
from ..analysis.syntax.walk import descendants
from ..analysis.training.cached_batches import kept_generators
from ..facts.roles import Origin, Role
from .program import EmittedProgram
from .violation import Violation


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
    for step in program.training.steps:
        for optimizer in _stepped(program, step):
            by = [r for r in program.prepares if any(optimizer in program.held(r.unit, a.value) for a in r.node.args)]
            remade = program.unit_of(optimizer.node) is step.unit and _comes_after(step.unit, step.node, optimizer.node)
            if by and not remade and all(r.unit is step.unit and _comes_after(r.unit, step.node, r.node) for r in by):
                words = "this is prepared only after it has stepped"
                yield Violation("prepared-late", program.at(by[0]), words, program.at(step))
    for record in program.prepares:
        if (call := _trained_before(program, record)) is not None:
            words = "this is prepared only after a call that trains it"
            yield Violation("prepared-late", program.at(record), words, program.at(call))
    yield from _read_before(program)
    for generator in kept_generators(program.state, program.reach):
        for record in program.prepares:
            if _is_given_before(program, program.state.calls[generator], record, Role.LOADER):
                words = "this loader is prepared only after a generator was given it, which goes on with the other one"
                yield Violation("prepared-late", program.at(record), words, program.at(program.state.calls[generator]))
    yield from _kept_before(program)


def _kept_before(program: EmittedProgram) -> Iterator[Violation]:
    """The objects, containers and variables that are given a loader before it is prepared, where a loop then reads
    theirs."""
    for record in program.prepares:
        names = {argument.value.value for argument in record.node.args if isinstance(argument.value, cst.Name)}
        for taken in _given(program, record.unit) if names else ():
            node, value = taken.node, taken.source
            if not (
                isinstance(value, cst.Name) and value.value in names and _comes_after(record.unit, node, record.node)
            ):
                continue
            prepared = (o for arg in record.node.args for o in origins(program.state.values.get(arg.value)))
            if taken.loader in prepared and not _bound_between(record.unit, value, node, record.node):
                if _is_read(program, record.unit, taken):
                    words = (
                        "this loader is prepared only after something was given it, from which a loop reads the other"
                    )
                    yield Violation("prepared-late", program.at(record), words, CodePlace(record.unit, node))


def _is_read(program: EmittedProgram, unit: Unit, taken: Taken) -> bool:
    """Whether a loop gets a loader from what has taken it in."""
    sources = list(_sources(program, taken.loader))
    things = _things(program, taken.node)
    held = (program.state.values.get(node) for _, node in sources)
    if any(not things.isdisjoint(slot.things) for slot in held if slot is not None):
        return True
    binding = unit.names.binding(taken.target) if isinstance(taken.target, cst.Name) else None
    reads = [node for at, node in sources if at is unit and isinstance(node, cst.Name)]
    reads = [node for node in reads if binding is not None and unit.names.binding(node) is binding]
    return binding is not None and any(taken.target in unshadowed(unit.names, binding, read) for read in reads)


def _given(program: EmittedProgram, unit: Unit) -> Iterator[Taken]:
    """Where the objects and the containers of a module get a loader."""
    yield from taken_in(program.state, unit)
    for call in unit.names.calls:
        if any(getattr(thing, "node", None) is call for thing in _things(program, call)):
            for argument in call.args:
                loaders = origins(program.state.values.get(argument.value), Role.LOADER)
                yield from (Taken(call, argument.value, loader) for loader in loaders)


def _things(program: EmittedProgram, node: cst.CSTNode) -> set[Thing]:
    """What an expression gives; of a method of a container, and of an assignment to a place in it, the container."""
    target = node.targets[0].target if isinstance(node, cst.Assign) else None
    if isinstance(target, cst.Subscript):
        node = target.value
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        held = program.state.values.get(node.func.value)
        if held is not None and any(isinstance(thing, (Sequence, Mapping)) for thing in held.things):
            node = node.func.value
    slot = program.state.values.get(node)
    things = slot.things if slot is not None else ()
    return {t for t in things if not isinstance(t, Trace) and not (isinstance(t, Origin) and t.role is Role.LOADER)}


def _sources(program: EmittedProgram, loader: Origin) -> Iterator[tuple[Unit, cst.CSTNode]]:
    """What the loops read that go through a loader, and the loops around them."""
    for loop in (*program.training.train_loops, *program.training.eval_loops):
        unit = program.unit_of(loop)
        if unit is None or not isinstance(loop, cst.For) or loader not in program.reach.loaders(loop):
            continue
        around = unit.names.enclosing(loop, cst.For)
        yield from ((unit, node) for each in (loop, *around) for node in descendants(each.iter))


def _comes_after(unit: Unit, first: cst.CSTNode, second: cst.CSTNode) -> bool:
    """Whether one node comes after another in the same code, and is no part of it."""
    names = unit.names
    return names.function(first) is names.function(second) and names.order(second) > names.end(first)


def _trained_before(program: EmittedProgram, record: CallRecord) -> CallRecord | None:
    """An earlier call of the same code that is given something of what a call prepares, and steps an optimizer."""
    for call, other in program.state.calls.items():
        if _is_given_before(program, other, record, Role.MODEL, Role.OPTIMIZER) and program.steps_below(call):
            return other
    return None


def _read_before(program: EmittedProgram) -> Iterator[Violation]:
    """The loaders that a loop reads before they are prepared: every process has all of their rows there."""
    for loop in (*program.training.train_loops, *program.training.eval_loops):
        for loader in program.reach.loaders(loop):
            by = [r for r in program.prepares if any(loader in program.held(r.unit, a.value) for a in r.node.args)]
            for unit, use in _uses(program, loop, loader, {r.unit.names.function(r.node) for r in by}):
                made_later = program.unit_of(loader.node) is unit and _comes_after(unit, use, loader.node)
                if not made_later and all(r.unit is unit and _comes_after(unit, use, r.node) for r in by):
                    words = "this loader is prepared only after a loop has read it"
                    yield Violation("prepared-late", program.at(by[0]), words, CodePlace(unit, use))


def _uses(
    program: EmittedProgram, loop: cst.CSTNode, loader: Origin, codes: Iterable[Code]
) -> Iterator[tuple[Unit, cst.CSTNode]]:
    """Where some functions read a loader in a loop: the loop, and the calls that come to it with the loader."""
    home = program.unit_of(loop)
    for code in codes:
        unit = program.reach.unit(code)
        if home is not None and home.names.function(loop) is code:
            if isinstance(loop, cst.For) and not program.replaced(unit, loop.iter, loader):
                yield unit, loop
        elif home is not None:
            for call in (node for node in program.reach.own(code) if isinstance(node, cst.Call)):
                called = program.reach.called(call)
                if any(home.names.function(loop) in program.reach.below(function) for function in called):
                    if _comes_with(program, program.state.calls[call], loader):
                        yield unit, call


def _comes_with(program: EmittedProgram, call: CallRecord, loader: Origin) -> bool:
    """Whether a call is given a loader; or is given none, and is called on an object that has it."""
    given = [o for argument in call.node.args for o in program.held(call.unit, argument.value)]
    if any(origin.role is Role.LOADER for origin in given):
        return loader in given
    objects = call.receiver.things if call.receiver is not None else ()
    return any(o in objects and loader in held.things for o, held in program.state.fields())


def _is_given_before(program: EmittedProgram, call: CallRecord, prepare: CallRecord, *roles: Role) -> bool:
    """Whether a call is given what is prepared in the same code, and only later."""
    if call.unit is not prepare.unit or not _comes_after(call.unit, call.node, prepare.node):
        return False
    values = program.state.values
    taken = {origin for arg in prepare.node.args for origin in origins(values.get(arg.value), *roles)}
    same = (a.value for a in call.node.args if not _bound_between(call.unit, a.value, call.node, prepare.node))
    return any(origin in taken for value in same for origin in origins(values.get(value)))


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
