"""What a scheduler counts: steps of the optimizer, epochs, a metric, or the rounds of a loop of fixed length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import CallRecord, Function, State, Unit, origins
from ..syntax.definitions import attribute_assignments, bindings_value, entered_values, plain_values
from ..syntax.nodes import adds_one, counter, dotted
from ..syntax.walk import contains, descendants, nodes_in
from .training import Training

_COUNTED = frozenset({"range", "trange", "count"})
_ENDLESS = frozenset({"cycle", "repeat"})


def tick_unit(reach: Reach, training: Training, record: CallRecord, scheduler: Origin) -> str:
    """
    How often a ``scheduler.step()`` runs: with every optimizer step, every epoch, or on a metric.

    ``step``: with every round of a training that is as long on N processes as on one: a loop of fixed length that draws
    its batches, or a loop over a loader that is left at a number of steps. Its horizon is counted in those rounds, and
    not in the batches that the processes share. ``own batch``: with every optimizer step, of a schedule as long as this
    process's batches.
    """
    if "Plateau" in scheduler.qualified:
        return "metric"
    if any(arg.star == "" for arg in record.node.args):
        return "position"
    loops = _train_loops(reach, training, record)
    if not loops:
        return "optimizer step" if _is_flush(reach, training, record, scheduler) else "epoch"
    if not any(_follows_loader(reach, loop) for loop in loops):
        return "step"
    if _asks_later(reach.state, scheduler):
        return "own batch"
    if all(_runs_to_count(reach, loop) for loop in loops):
        return "step"
    counted = all(_left_at_count(reach, loop) for loop in loops) and not _built_with_length(reach, scheduler)
    return "step" if counted else "optimizer step"


def _train_loops(reach: Reach, training: Training, record: CallRecord) -> list[cst.CSTNode]:
    return [lp for lp in reach.batch_loops(record.node, record.unit) if lp in training.train_loops]


def _is_flush(reach: Reach, training: Training, record: CallRecord, scheduler: Origin) -> bool:
    """Whether a step after the loop goes with the optimizer's there, for the micro-batches that are left over, as the
    steps in the loop do."""
    unit = record.unit
    beside = (step for step in training.steps if step.unit is unit)
    together = any(unit.names.block(step.node) is unit.names.block(record.node) for step in beside)
    ticks = (tick for tick in training.ticks if tick is not record)
    others = (tick for tick in ticks if scheduler in origins(tick.receiver, Role.SCHEDULER))
    return together and any(_train_loops(reach, training, tick) for tick in others)


def _asks_later(state: State, scheduler: Origin) -> bool:
    """
    Whether the function that a scheduler calls at each step reads the length of a loader: ``lambda step: 1 - step /
    (epochs * len(loader))``.

    By then the loader is prepared, and as long as the batches of this process: its own steps are what is counted.
    """
    for arg in scheduler.node.args if isinstance(scheduler.node, cst.Call) else ():
        held = state.values.get(arg.value)
        given = [thing.node for thing in held.things if isinstance(thing, Function)] if held is not None else []
        inside = [n.body for n in nodes_in(arg.value, cst.Lambda)] + [f.body for f in given]
        lengths = (call for body in inside for call in descendants(body) if is_length(call))
        if any(origins(state.values.get(length.args[0].value), Role.LOADER) for length in lengths):
            return True
    return False


def _built_with_length(reach: Reach, scheduler: Origin) -> bool:
    """Whether the horizon that a scheduler is built with is made of the length of a loader."""
    return any(True for _ in horizon(reach, scheduler))


def horizon(reach: Reach, scheduler: Origin) -> Iterator[tuple[Unit, cst.Call]]:
    """The ``len(...)`` that go into what a scheduler is built with, each with its module."""
    unit = next((u for u in reach.units if scheduler.node in u.names.parents), None)
    for arg in scheduler.node.args if unit is not None and isinstance(scheduler.node, cst.Call) else ():
        if unit is not None and not origins(reach.state.values.get(arg.value), Role.OPTIMIZER):
            yield from lengths(reach, unit, arg.value)


def follows_batches(reach: Reach, loop: cst.CSTNode) -> bool:
    """Whether a loop is as long as the batches of a process: it ends when a shared loader does, and not at a count."""
    return _follows_loader(reach, loop) and not reach.state.once(
        (_left_at_count, loop), lambda: _left_at_count(reach, loop)
    )


def _left_at_count(reach: Reach, loop: cst.CSTNode) -> bool:
    """
    Whether the training ends at a number of steps, whatever the length of its loader: ``while step < total:`` around a
    loop over the loader, or ``if step >= total: break`` in it.

    The number must not be made of the length of a loader. ``if limit > 0 and step >= limit: break`` says nothing: by
    default it may be the loader that ends the training.
    """
    around = list(_around(reach, loop))
    tests = [(unit, test, counters) for unit, each, counters in around for test in _exits(unit, each)]
    bounds = [(unit, bound) for unit, test, counters in tests for bound in _bounds(test, counters)]
    return any(not made_of_length(reach, unit, bound) for unit, bound in bounds)


def _runs_to_count(reach: Reach, loop: cst.CSTNode) -> bool:
    """
    Whether a loop begins anew until a number of steps is made: ``while step < total:`` around a loop over the loader,
    or around the call of a function with that.

    Each process makes that many steps then, whatever the number is made of: the schedule has to be as long.
    """
    return isinstance(loop, cst.For) and any(
        isinstance(each, cst.While) and any(True for _ in _bounds(each.test, counters))
        for _, each, counters in _around(reach, loop)
    )


def _around(reach: Reach, loop: cst.CSTNode) -> Iterator[tuple[Unit, cst.For | cst.While, list[cst.BaseExpression]]]:
    """A loop and those in whose turns it runs, also by way of the callers of its function; each with its module, and
    with what counts the rounds of the first loop there."""
    unit = next((u for u in reach.units if loop in u.names.parents), None)
    if unit is None or not isinstance(loop, (cst.For, cst.While)):
        return
    counters = _counters(loop)
    kept = [*counters, *_kept_counters(reach, unit, loop)]
    pending: list[tuple[Unit, cst.CSTNode, list[cst.BaseExpression]]] = [(unit, loop, kept)]
    yield unit, loop, kept
    seen = {unit.names.function(loop)}
    while pending:
        unit, node, counters = pending.pop()
        for each in unit.names.enclosing(node, cst.For, cst.While):
            yield unit, each, counters
        code = unit.names.function(node)
        for call in reach.sites(code):
            caller = reach.state.calls[call].unit
            if caller.names.function(call) not in seen:
                seen.add(caller.names.function(call))
                pending.append((caller, call, list(_handed_back(unit, code, caller, call, counters))))


def _kept_counters(reach: Reach, unit: Unit, loop: cst.For | cst.While) -> Iterator[cst.BaseExpression]:
    """The attributes that the functions called in the rounds of a loop count on by one, each time."""
    for node in reach.runs(loop.body, unit):
        if isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Attribute) and adds_one(node):
            names = reach.unit_of(node, unit).names
            if next(names.enclosing(node, cst.If, cst.For, cst.While), None) is None:
                yield node.target


def _handed_back(
    unit: Unit, code: cst.CSTNode, caller: Unit, call: cst.Call, counters: list[cst.BaseExpression]
) -> Iterator[cst.BaseExpression]:
    """What counts the same in a caller: attributes, and what gets the counter that the function returns."""
    yield from (one for one in counters if isinstance(one, cst.Attribute))
    assign = caller.names.parents.get(call)
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return
    for returned in unit.names.returns.get(code, ()):
        target = assign.targets[0].target
        for given, taken in _paired(returned.value, target):
            if any(given.deep_equals(one) for one in counters):
                yield taken


def _paired(
    given: cst.BaseExpression | None, target: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """What is returned, with what gets it."""
    if isinstance(given, cst.Tuple) and isinstance(target, cst.Tuple):
        yield from zip((e.value for e in given.elements), (e.value for e in target.elements), strict=False)
    elif given is not None:
        yield given, target


def _counters(loop: cst.For | cst.While) -> list[cst.BaseExpression]:
    """What a loop counts on by one in its rounds: ``step += 1``, ``self.step += 1``, the number of ``enumerate``."""
    number = counter(loop) if isinstance(loop, cst.For) else None
    counters: list[cst.BaseExpression] = [number] if number is not None else []
    for node in nodes_in(loop.body, cst.Assign, cst.AugAssign):
        if adds_one(node):
            counters.append(node.target if isinstance(node, cst.AugAssign) else node.targets[0].target)
    return counters


def _exits(unit: Unit, loop: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """The conditions on which a loop ends: its own, and those of an ``if`` that leaves it."""
    if isinstance(loop, cst.While):
        yield loop.test
    for node in nodes_in(loop, cst.Break, cst.Return):
        choice = next(unit.names.enclosing(node, cst.If, cst.For, cst.While), None)
        left = next(unit.names.enclosing(node, cst.For, cst.While), None)
        if isinstance(choice, cst.If) and (left is loop or isinstance(node, cst.Return)):
            yield choice.test


def _bounds(test: cst.BaseExpression, counters: list[cst.BaseExpression]) -> Iterator[cst.BaseExpression]:
    """What a counter is compared with: ``step >= total``."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or):
        yield from (bound for part in (test.left, test.right) for bound in _bounds(part, counters))
    elif isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        right = test.comparisons[0].comparator
        for side, bound in ((test.left, right), (right, test.left)):
            if any(side.deep_equals(one) for one in counters):
                yield bound


def made_of_length(reach: Reach, unit: Unit, value: cst.CSTNode) -> bool:
    """Whether a ``len(...)`` goes into a value, through the variables, parameters and attributes that it comes from."""
    return any(True for _ in lengths(reach, unit, value))


def lengths(reach: Reach, unit: Unit, value: cst.CSTNode) -> Iterator[tuple[Unit, cst.Call]]:
    """The ``len(...)`` that go into a value, each with its module."""
    pending, seen = [(unit, value)], set[cst.CSTNode]()
    while pending:
        home, made = pending.pop(0)
        for node in descendants(made):
            if node not in seen:
                seen.add(node)
                if is_length(node):
                    yield home, node
                pending += sources(reach, home, node)


def sources(reach: Reach, unit: Unit, node: cst.CSTNode) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    """What a variable or an attribute is given: by assignments, and a parameter by the calls of its function."""
    if isinstance(node, cst.Name):
        binding = unit.names.binding(node)
        if binding is not None:
            yield from ((unit, value) for value in bindings_value(unit.names, binding))
            if any(isinstance(definition, cst.Param) for definition in binding.definitions):
                yield from reach.given(binding)
    elif isinstance(node, cst.Attribute):
        yield from ((unit, assign.value) for assign in attribute_assignments(unit.names, node))


def is_length(node: cst.CSTNode) -> TypeGuard[cst.Call]:
    """``len(...)``."""
    return isinstance(node, cst.Call) and dotted(node.func) == "len" and bool(node.args)


def _follows_loader(reach: Reach, loop: cst.CSTNode) -> bool:
    """Whether the length of a loop is that of a loader, which is shared among the processes."""
    unit = next((u for u in reach.units if loop in u.names.parents), None)
    if unit is None:
        return True
    if isinstance(loop, cst.While):
        always = isinstance(loop.test, (cst.Name, cst.Integer))
        return always or asks_length(unit, loop.test, bool(reach.loops(loop, unit)))
    return not isinstance(loop, cst.For) or _bounded(reach, unit, loop.iter, bool(reach.loops(loop, unit)))


def _bounded(reach: Reach, unit: Unit, source: cst.BaseExpression, inner: bool, depth: int = 4) -> bool:
    """Whether what a loop iterates ends when a loader does; ``inner``: the loop is in another one."""
    if isinstance(source, cst.Name) and depth:
        values = plain_values(unit.names, source) or _entered(unit, source)
        return not values or any(_bounded(reach, unit, value, inner, depth - 1) for value in values)
    if not isinstance(source, cst.Call):
        return True
    name = method_name(source) or dotted(source.func)
    if name in _COUNTED:
        return any(asks_length(unit, arg.value, inner) for arg in source.args)
    if name in _ENDLESS:
        return False
    if name == "islice" and len(source.args) > 1:
        stop = source.args[1 if len(source.args) == 2 else 2].value
        return dotted(stop) == "None" or asks_length(unit, stop, inner)
    if name == "zip":
        return any(_bounded(reach, unit, arg.value, inner, depth) for arg in source.args)
    if (name == "enumerate" or questions.iterates(name)) and source.args:
        return _bounded(reach, unit, source.args[0].value, inner, depth)
    return not any(_never_ends(function) for function in reach.called(source))


def _entered(unit: Unit, name: cst.Name) -> list[cst.BaseExpression]:
    """``with trange(steps) as bar:``, of a variable that is bound nowhere else."""
    binding = unit.names.binding(name)
    found = entered_values(unit.names, binding) if binding is not None else []
    return found if binding is not None and len(found) == len(binding.definitions) else []


def asks_length(unit: Unit, number: cst.BaseExpression, inner: bool) -> bool:
    """Whether a number is made of a ``len(...)``; one that was worked out before counts in an inner loop only, for a
    loop over all epochs is as long on N processes as it was on one."""
    for node in descendants(number):
        if is_length(node):
            return True
        if inner and isinstance(node, cst.Name):
            made = (n for value in plain_values(unit.names, node) for n in descendants(value))
            if any(map(is_length, made)):
                return True
    return False


def _never_ends(function: cst.CSTNode) -> bool:
    """A generator that begins anew for ever: ``while True: yield from loader``."""
    return any(
        isinstance(node.test, (cst.Name, cst.Integer)) and contains(node, cst.Yield)
        for node in nodes_in(function, cst.While)
    )
