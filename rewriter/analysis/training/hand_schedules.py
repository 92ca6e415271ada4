"""Learning rates that a script sets by itself, from a count of its steps: each process counts its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import libcst as cst

from ...facts.module import Count
from ...facts.reasons import Reason
from ...facts.reasons.batches import EarlyHorizon
from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.values import Unit, origins
from ..syntax.nodes import adds_one, is_zero
from ..syntax.walk import children, descendants
from .own_rates import OwnRate, own_rates
from .schedules import follows_batches, lengths, sources
from .step_counts import numbered
from .training import Training

Place = tuple[Unit, cst.CSTNode]


def hand_schedules(reach: Reach, unit: Unit, training: Training, loops: Collection[cst.CSTNode]) -> Iterator[Count]:
    """The counts of steps in a module that learning rates of the program are made of, each once."""
    shared = {loop for loop in loops if loop in training.train_loops and follows_batches(reach, loop)}
    seen: set[str] = set()
    rates = _rates(reach) if shared else []
    for where, node in (found for home, rate in rates for found in _counters(reach, home, rate, shared)):
        text = unit.names.module.code_for_node(node) if where is unit else ""
        if text and text not in seen:
            seen.add(text)
            yield Count(node, "rate", text)


def early_horizons(
    reach: Reach,
    unit: Unit,
    training: Training,
    shared: Collection[cst.CSTNode],
    is_early: Callable[[cst.Call], bool],
) -> Iterator[Reason]:
    """
    Learning rates that divide a count of steps by a total that is made of the length of a loader, asked for in this
    module before the loader is prepared: ``1 - step / (epochs * len(loader))``.

    Args:
        reach: what the program runs.
        unit: the module that asks for the length.
        training: what trains.
        shared: the loops whose loaders are prepared.
        is_early: a call comes before `prepare`, in the same code.
    """
    loops = {loop for loop in shared if loop in training.train_loops and follows_batches(reach, loop)}
    told: set[cst.Call] = set()
    rates = _rates(reach) if loops else []
    starts: list[Place] = [(home, part) for home, rate in rates for part in _decide(home, rate)]
    for where, node in _followed(reach, starts, lambda where, node: False):
        if not isinstance(node, cst.BinaryOperation) or not _of_loader(reach, where, node):
            continue
        counted = [name for _, name in _behind(reach, [(where, node.left)], loops)]
        for there, length in lengths(reach, where, node.right) if counted else ():
            if there is unit and length not in told and is_early(length):
                told.add(length)
                yield _early_horizon(unit, length, where, counted[0])


def _early_horizon(unit: Unit, length: cst.Call, where: Unit, counted: cst.CSTNode) -> Reason:
    asked, count = unit.names.module.code_for_node(length), where.names.module.code_for_node(counted)
    return EarlyHorizon(length, count, asked)


def _rates(reach: Reach) -> list[tuple[Unit, OwnRate]]:
    """What sets a learning rate in a program: ``group["lr"] = rate``, for a group of an optimizer."""
    return reach.state.once(_rates, lambda: [(unit, rate) for unit in reach.units for rate in _set_rates(reach, unit)])


def _set_rates(reach: Reach, unit: Unit) -> Iterator[OwnRate]:
    every = unit.names.every(cst.Assign, cst.AugAssign, cst.Call)
    run = [node for node in every if unit.names.function(node) in reach.reachable]
    yield from (rate for rate in own_rates(reach, unit, run) if rate.of_group)


def _counters(reach: Reach, unit: Unit, rate: OwnRate, shared: set[cst.CSTNode]) -> Iterator[Place]:
    """The counts of steps that decide about a rate; the rate itself where each step changes it."""
    found = [*_behind(reach, [(unit, part) for part in _decide(unit, rate)], shared)]
    node = rate.node
    choices = unit.names.enclosing(node, cst.If)
    if not found and not any(True for _ in choices) and isinstance(node, cst.AugAssign):
        if not shared.isdisjoint(reach.batch_loops(node, unit)):
            yield unit, node.target
    yield from found


def _decide(unit: Unit, rate: OwnRate) -> list[cst.BaseExpression]:
    """What decides about a rate: its value, and the thresholds under which it is set."""
    choices = [node.test for node in unit.names.enclosing(rate.node, cst.If)]
    return [rate.value, *filter(_is_threshold, choices)]


def _is_threshold(test: cst.BaseExpression) -> bool:
    """``step < 1000``; the first batch of an epoch is the first one on N processes, and a cadence is named as such."""
    parts = list(descendants(test))
    cadence = any(isinstance(n, cst.BinaryOperation) and isinstance(n.operator, cst.Modulo) for n in parts)
    return not cadence and not any(isinstance(n, cst.ComparisonTarget) and is_zero(n.comparator) for n in parts)


def _behind(reach: Reach, start: list[Place], shared: set[cst.CSTNode]) -> Iterator[Place]:
    """
    The counts of steps that go into some values.

    What is divided by the length of a loader is no such count: it is as long on N processes.
    """

    def ends(home: Unit, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.BinaryOperation):
            return _of_loader(reach, home, node)
        return isinstance(node, (cst.Name, cst.Attribute)) and _counts_steps(reach, home, node, shared)

    for home, node in _followed(reach, start, ends):
        if isinstance(node, (cst.Name, cst.Attribute)) and ends(home, node):
            yield home, node


def _of_loader(reach: Reach, unit: Unit, node: cst.BinaryOperation) -> bool:
    """Whether something is divided by what is made of the length of a loader."""
    if not isinstance(node.operator, (cst.Divide, cst.FloorDivide, cst.Modulo)):
        return False
    values = reach.state.values
    asked = (length.args[0].value for _, length in lengths(reach, unit, node.right))
    return any(origins(values.get(value), Role.LOADER) for value in asked)


def _followed(reach: Reach, start: list[Place], ends: Callable[[Unit, cst.CSTNode], bool]) -> Iterator[Place]:
    """What some values are made of, up to where it ends: through variables, arguments, attributes, and functions."""
    pending, seen = [*start], set[cst.CSTNode]()
    while pending:
        home, node = pending.pop(0)
        if node in seen:
            continue
        seen.add(node)
        yield home, node
        if ends(home, node):
            continue
        pending += [(home, child) for child in children(node)]
        pending += sources(reach, home, node)
        for function in reach.called(node) if isinstance(node, cst.Call) else ():
            there = reach.unit(function)
            pending += [(there, r.value) for r in there.names.returns.get(function, ()) if r.value is not None]


def _counts_steps(reach: Reach, unit: Unit, node: cst.Name | cst.Attribute, shared: set[cst.CSTNode]) -> bool:
    """Whether a variable or an attribute counts the batches of loops over shared loaders."""
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    if isinstance(node, cst.Name):
        definitions = binding.definitions if binding is not None else []
        parents = [next(unit.names.enclosing(d, cst.AugAssign, cst.Assign, cst.For), None) for d in definitions]
        if any(lp in shared and isinstance(lp, cst.For) and numbered(lp) == node.value for lp in parents):
            return True
        adds = [p for p in parents if isinstance(p, (cst.AugAssign, cst.Assign)) and adds_one(p) == node.value]
    else:
        every = unit.names.every(cst.AugAssign, cst.Assign)
        text = unit.names.module.code_for_node(node)
        adds = [p for p in every if isinstance(p, (cst.AugAssign, cst.Assign)) and adds_one(p) == text]
    return any(not shared.isdisjoint(reach.batch_loops(each, unit)) for each in adds)
