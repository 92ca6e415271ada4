"""Programs that are not migrated, or not as a whole: each refusal with its id, its place and its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.refusals import (
    ConflictingRoles,
    FeedOrigin,
    ForeignFeed,
    FrameworkLoop,
    HyperparameterSearch,
    NoBatches,
    OwnList,
    OwnProcesses,
    RemovedNext,
    TrainerLoop,
    UnclearFeed,
    UncutBatches,
    UndefinedFeed,
)
from ...facts.roles import Role
from ...facts.torch_api import questions
from ...facts.torch_api.loading import row
from ..dataflow.call_graph import Reach
from ..dataflow.callees import built_names, method_name, outside_name
from ..dataflow.values import CallRecord, Function, Instance, State, Unit, origins
from ..distributed.manual_ddp import ByHand
from ..distributed.replacements import distributed
from ..layouts.by_hand.data_sources import is_data
from ..layouts.by_hand.trainings import counts_rounds, is_undefined
from ..layouts.by_hand.trial import Obstacle
from ..syntax.definitions import added_to, bindings_value, plain_values
from ..syntax.names import LONGEST
from ..syntax.nodes import dotted, import_source
from ..syntax.scopes import Binding
from ..syntax.walk import nodes_in
from ..training.training import Training
from .outdated import removed_nexts
from .unstarted import without_entry


def refusals(
    state: State, reach: Reach, training: Training, hand: ByHand | None, uncut: Obstacle | None = None
) -> Iterator[tuple[Unit, Reason]]:
    """
    What prevents the migration of a program as a whole.

    Args:
        state: the solved program.
        reach: its call graph.
        training: what it trains.
        hand: how it distributes itself, if that can be replaced.
        uncut: why the batches that it makes without a loader cannot be cut into shards.
    """
    by_hand = list(distributed(state, reach)) if hand is None else hand.obstacles
    if by_hand:
        yield from by_hand
        return
    for unit in reach.units:
        framework = next(_framework(state, unit), None)
        if framework is not None:
            yield unit, framework
            return
    own = _own_processes(state, reach)
    if own is not None:
        yield own
        return
    search = _search(state, reach)
    if training.backwards and search is not None:
        yield search
    if not training.backwards:
        unstarted = list(without_entry(state, reach)) if not training.probes else []
        yield from [search] if unstarted and search is not None else unstarted  # whoever searches starts it
        return
    if not training.train_loops and hand is None:  # who distributes himself decides what each process trains on
        unfed = _unfed(state, reach, training, uncut)
        yield from [unfed] if not isinstance(unfed[1], RemovedNext) else removed_nexts(state, reach, feeds=True)


_EXCLUSIVE = (Role.MODEL, Role.OPTIMIZER, Role.LOADER, Role.SCHEDULER)


def contradictions(state: State, unit: Unit, reach: Reach) -> Iterator[Reason]:
    """Variables for which the evidence speaks of several roles at once: no role is better than a guess."""
    for scope in unit.names.scopes.values():
        if scope.function.node not in reach.reachable:
            continue
        for binding in scope.bindings.values():
            held = origins(state.binding(binding), *_EXCLUSIVE)
            first = {origin.role: origin for origin in held}
            if len(first) < 2 or any(origin.qualified == "assumed" for origin in held) or not binding.definitions:
                continue
            roles = tuple((role.value, origin.because) for role, origin in first.items())
            in_turn = _one_after_the_other(state, unit, binding)
            yield ConflictingRoles(binding.definitions[0], binding.name, roles, in_turn)


def _one_after_the_other(state: State, unit: Unit, binding: Binding) -> bool:
    """Whether a variable is one thing, and later another one: each assignment gives it one role for certain."""
    values = bindings_value(unit.names, binding)
    roles = [{o.role for o in origins(state.values.get(value), *_EXCLUSIVE)} for value in values]
    return len(values) == len(binding.definitions) and all(len(found) == 1 for found in roles)


def _unfed(state: State, reach: Reach, training: Training, uncut: Obstacle | None) -> tuple[Unit, Reason]:
    """No known loader feeds the training: say whether there is none, or one that cannot be seen."""
    record = training.backwards[0]
    if uncut is not None and uncut.certain:
        return _not_cut(state, reach, uncut, record)
    for loop in reach.loops(record.node, record.unit):
        if isinstance(loop, cst.For):
            source = loop.iter
            while isinstance(source, cst.Call) and source.args and not reach.called(source):
                if method_name(source) in ("range", "trange") or not outside_name(state.calls[source]):
                    break  # a method of an object gives what is its own: `folds.split(rows)`
                source = source.args[0].value
            name = record.unit.names.module.code_for_node(source)
            if isinstance(source, cst.Name) and counts_rounds(record.unit, source):
                continue
            if is_undefined(record.unit, source):
                return record.unit, UndefinedFeed(loop, name)
            if uncut is not None and _hands_out(state, source):
                return _not_cut(state, reach, uncut, record)
            if isinstance(source, cst.Name) and _is_collection(state, record.unit, source):
                if uncut is not None:
                    return _not_cut(state, reach, uncut, record)
                return record.unit, OwnList(loop, name)
            if isinstance(source, (cst.Name, cst.Attribute)) and not origins(state.values.get(source)):
                return record.unit, UnclearFeed(loop, name, source, _given(reach, record.unit, source))
    feeding = _foreign_feed(state, reach, record)
    if feeding is not None:
        source, giver = feeding
        name = record.unit.names.module.code_for_node(source)
        return record.unit, ForeignFeed(source, name, name if isinstance(source, cst.Name) else "", giver)
    removed = next(removed_nexts(state, reach, feeds=True), None)
    if removed is not None:
        return removed
    if uncut is not None:
        return _not_cut(state, reach, uncut, record)
    return record.unit, NoBatches(record.node)


def _given(reach: Reach, unit: Unit, source: cst.BaseExpression) -> FeedOrigin | None:
    """Where what feeds the training is filled, or made: through parameters, and out of functions."""
    seen: set[cst.CSTNode] = set()
    while source not in seen:
        seen.add(source)
        found: list[tuple[Unit, cst.BaseExpression]] = []
        if isinstance(source, cst.Name) and (binding := unit.names.binding(source)) is not None:
            if filled := added_to(unit.names, source):
                return FeedOrigin(filled[0], filled=True)
            found = [*((unit, value) for value in plain_values(unit.names, source)), *reach.given(binding)]
        elif isinstance(source, cst.Call):
            found = [
                (other, answer.value)
                for code in reach.called(source)
                for other in (reach.unit(code),)
                for answer in other.names.returns.get(code, ())
                if answer.value is not None
            ]
        if found:
            unit, source = found[0]
    return FeedOrigin(source, filled=False) if len(seen) > 1 else None


def _is_collection(state: State, unit: Unit, name: cst.Name) -> bool:
    """Whether all that a variable is given is a list, an array or a tensor, and so no loader."""
    values = plain_values(unit.names, name)
    return bool(values) and all(
        isinstance(value, (cst.List, cst.Tuple, cst.Set, cst.ListComp, cst.SetComp))
        or (isinstance(value, cst.Call) and value in state.calls and _makes_array(outside_name(state.calls[value])))
        or is_data(state, unit, value, set())
        for value in values
    )


def _makes_array(name: str) -> bool:
    return name in ("builtins.list", "builtins.sorted", "builtins.tuple") or name.startswith("numpy.")


def _hands_out(state: State, source: cst.BaseExpression) -> bool:
    """Whether a loop goes over an object of the program's own class, by its own code: no loader of torch."""
    slot = state.values.get(source)
    things = slot.things if slot is not None else ()
    klasses = [thing.klass for thing in things if isinstance(thing, Instance)]
    return bool(klasses) and len(klasses) == len(things) and all(k.method("__iter__") for k in klasses)


def _not_cut(state: State, reach: Reach, uncut: Obstacle, backward: CallRecord) -> tuple[Unit, Reason]:
    """The batches of a training without a loader cannot be cut; where that is seen elsewhere, with its ``backward``."""
    called = uncut.node.func if isinstance(uncut.node, cst.Call) else uncut.node
    maker = _unknown_maker(state, reach, uncut.unit, called)
    name = uncut.unit.names.module.code_for_node(called) if maker is not None else ""
    training = backward.node if uncut.unit is not backward.unit else None
    return uncut.unit, UncutBatches(uncut.node, uncut.reason, uncut.remedy, uncut.plays, name, maker or "", training)


def _foreign_feed(state: State, reach: Reach, record: CallRecord) -> tuple[cst.BaseExpression, str] | None:
    """What the training asks for its next batch, where a package of which nothing is known has made it, and with what:
    ``feed = cycle(data["train"])``, ``data = odd.load()``."""
    unit = record.unit
    for loop in reach.loops(record.node, unit):
        for call in nodes_in(loop, cst.Call):
            if method_name(call) == "next" and len(call.args) == 1:
                found = _from_outside(state, reach, unit, call.args[0].value)
                if found is not None:
                    return found
    return None


def _from_outside(
    state: State, reach: Reach, unit: Unit, node: cst.BaseExpression, seen: frozenset[cst.CSTNode] = frozenset()
) -> tuple[cst.BaseExpression, str] | None:
    if isinstance(node, (cst.Subscript, cst.Attribute)):
        found = _from_outside(state, reach, unit, node.value, seen)
        return (node, found[1]) if found is not None else None
    if isinstance(node, cst.Name):
        values = plain_values(unit.names, node) if node not in seen else []
        found = _from_outside(state, reach, unit, values[0], seen | {node}) if len(values) == 1 else None
        if found is None or (isinstance(values[0], cst.Call) and found[0] is not values[0]):
            return found  # `feed = cycle(loader)`: it is the loader that is asked for
        return node, found[1]
    if not isinstance(node, cst.Call) or node not in state.calls:
        return None
    if reach.called(node) or method_name(node) in ("iter", "cycle"):
        return _from_outside(state, reach, unit, node.args[0].value, seen) if len(node.args) == 1 else None
    name = outside_name(state.calls[node])
    known = not name or name.startswith("builtins.") or row(name) is not None
    return None if known else (node, dotted(node.func) or name)


def _unknown_maker(
    state: State, reach: Reach, unit: Unit, node: cst.CSTNode, seen: frozenset[cst.CSTNode] = frozenset()
) -> str | None:
    """The call that makes what a variable holds, where it is not known what is called: ``eval(name).Net()``."""
    if isinstance(node, cst.Call):
        record = state.calls.get(node)
        unknown = record is not None and not outside_name(record) and not reach.called(node) and not record.callees
        text = unit.names.one_line(node)
        return (f"`{text}`" if len(text) <= LONGEST else "a call") if unknown else None
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    if binding is None or node in seen or not isinstance(node, cst.Name):
        return None
    values = [(unit, value) for value in plain_values(unit.names, node)]
    if all(isinstance(definition, cst.Param) for definition in binding.definitions):
        values = list(reach.given(binding))
    found = (_unknown_maker(state, reach, other, value, seen | {node}) for other, value in values)
    return next((maker for maker in found if maker is not None), None)


_STARTS = frozenset({"torch.multiprocessing.Process", "multiprocessing.Process"})


def _own_processes(state: State, reach: Reach) -> tuple[Unit, Reason] | None:
    """A script that trains in processes of its own making (Hogwild)."""
    for record in state.calls.values():
        if outside_name(record) not in _STARTS:
            continue
        for arg in record.node.args:
            held = state.values.get(arg.value)
            for thing in held.things if held is not None else ():
                inside = reach.below(thing.node) if isinstance(thing, Function) else {}
                if any(method_name(n) == "backward" for code in inside for n in reach.own(code) if _is_call(n)):
                    return record.unit, OwnProcesses(record.node)
    return None


_SUGGESTS = frozenset(
    "suggest_float suggest_int suggest_categorical suggest_uniform suggest_loguniform suggest_discrete_uniform".split()
)


def _search(state: State, reach: Reach) -> tuple[Unit, Reason] | None:
    """A search for hyperparameters around the training: each process would try its own."""
    for call, record in state.calls.items():
        if reach.function_of(call) not in reach.reachable:
            continue
        if questions.searches(outside_name(record)) or (method_name(call) in _SUGGESTS and not reach.called(call)):
            return record.unit, HyperparameterSearch(call)
    return None


def _is_call(node: cst.CSTNode) -> TypeGuard[cst.Call]:
    return isinstance(node, cst.Call)


def _framework(state: State, unit: Unit) -> Iterator[Reason]:
    for node in _imports(unit):
        for name in _modules(node):
            framework = questions.framework(name)
            if framework and not _leaves_loop(node, name):
                yield FrameworkLoop(node, framework)
    for call in unit.names.calls:
        record = state.calls.get(call)
        title = next(filter(None, map(questions.trainer, built_names(record))), "") if record is not None else ""
        if title:
            yield TrainerLoop(call, title)


def _leaves_loop(node: cst.Import | cst.ImportFrom, module: str) -> bool:
    """Whether what is imported of a framework does not run a loop: its seeding."""
    names = node.names if isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar) else ()
    return bool(names) and all(questions.leaves_the_loop(f"{module}.{alias.evaluated_name}") for alias in names)


def _imports(unit: Unit) -> Iterator[cst.Import | cst.ImportFrom]:
    found: dict[cst.Import | cst.ImportFrom, None] = {}
    for scope in unit.names.scopes.values():
        for binding in scope.bindings.values():
            for node in binding.definitions:
                statement = unit.names.parents.get(node)
                if isinstance(node, cst.ImportAlias) and isinstance(statement, (cst.Import, cst.ImportFrom)):
                    found[statement] = None
    yield from found


def _modules(node: cst.Import | cst.ImportFrom) -> list[str]:
    if isinstance(node, cst.ImportFrom):
        return [import_source(node)]
    return [alias.evaluated_name for alias in node.names]
