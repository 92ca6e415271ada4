"""
Random numbers for the rows of a data set that are the same on all processes.

Python's and NumPy's generators are kept equal, and a loader without workers draws from them in the process itself: the
numbers for the first row of a batch are those of every other process's first row. So is what torch draws once it is
seeded with such a number.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.module import Count
from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.solver import Slot, Thing
from ..dataflow.values import CallRecord, Function, Instance, Klass, Sequence, State, Unit, Unknown, origins
from ..syntax.definitions import plain_values
from ..syntax.nodes import dotted, keyword
from ..training.draws import compiled
from .differences import chosen_from, has_workers, loaders_of


def alike_draws(state: State, unit: Unit, reach: Reach) -> Iterator[Count]:
    """The calls in a module by which a data set draws the same numbers on all processes, and those that seed torch
    with one."""
    for node in (n for n in unit.names.calls if n in _for_rows(state, reach)):
        record = state.calls[node]
        if compiled(state, unit, node):
            continue
        if questions.draws_alike(outside_name(record)) and chosen_from(unit, node) is None:
            yield Count(node, "alike", dotted(node.func))
        elif questions.seeds(outside_name(record)) == "torch" and node.args:
            if _is_alike(state, unit, node.args[0].value):
                yield Count(node, "reseeded", dotted(node.func))


def _for_rows(state: State, reach: Reach) -> set[cst.CSTNode]:
    """The calls that run for the rows of a data set in the process that trains."""
    return state.once(_for_rows, lambda: {n for n in _run_for_rows(state, reach) if n in state.calls})


def _run_for_rows(state: State, reach: Reach) -> Iterator[cst.CSTNode]:
    made = [r for r in state.calls.values() if any(o.node is r.node for o in origins(r.result, Role.LOADER))]
    for klass in [klass for unit in reach.units for klass in unit.classes.values()]:
        getter = klass.method("__getitem__")
        loaders = list(loaders_of(state, klass)) if getter is not None else []
        plain = [loader for loader in loaders or made if not has_workers(loader, state)]
        if getter is None or not plain or not _is_set_of_rows(klass):
            continue
        pending = [getter, *(f for loader in plain for f in _collating(state, loader))]
        seen: set[Function] = set()
        while pending:
            function = pending.pop()
            if function not in seen:
                seen.add(function)
                nodes = list(reach.runs(function.node.body, function.unit))
                yield from nodes
                names = {node.attr.value for node in nodes if isinstance(node, cst.Attribute)}
                pending += [f for slot in _kept(state, klass, names) for f in _functions(state, slot)]


def _is_set_of_rows(klass: Klass) -> bool:
    return klass.role is Role.DATASET or klass.method("__len__") is not None


def _collating(state: State, loader: CallRecord) -> Iterator[Function]:
    given = keyword(loader.node, "collate_fn")
    yield from _functions(state, state.values.get(given) if given is not None else None)


def _kept(state: State, klass: Klass, names: set[str]) -> Iterator[Slot]:
    """What the objects of a class keep under some names: the transforms that are called for each row."""
    made = (t for record in state.calls.values() if klass in record.callees for t in record.result.things)
    for thing in {thing for thing in made if isinstance(thing, (Instance, Origin))}:
        yield from (state.field(thing, name) for name in names)


def _functions(state: State, slot: Slot | None) -> Iterator[Function]:
    """What may be called of what a slot holds, or by it: by a composition of transforms, which was made with them."""
    slots, seen = [slot], set[Thing]()
    while slots:
        held = slots.pop()
        for thing in held.things if held is not None else ():
            if thing in seen:
                continue
            seen.add(thing)
            if isinstance(thing, Function):
                yield thing
            elif isinstance(thing, Instance):
                call = thing.klass.method("__call__")
                yield from [call] if call is not None else []
            elif isinstance(thing, Sequence):
                slots += [*thing.items, thing.rest]
            elif isinstance(thing, Unknown):
                slots += [state.values.get(arg.value) for arg in getattr(thing.node, "args", ())]


def _is_alike(state: State, unit: Unit, seed: cst.BaseExpression) -> bool:
    """Whether a seed is a constant, or drawn from a generator that is equal on all processes."""
    values = plain_values(unit.names, seed) if isinstance(seed, cst.Name) else [seed]
    for value in values:
        record = state.calls.get(value) if isinstance(value, cst.Call) else None
        alike = record is not None and questions.draws_alike(outside_name(record))
        if not alike and not isinstance(value, cst.Integer):
            return False
    return bool(values)
