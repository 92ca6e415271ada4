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
from ...facts.torch_api import randomness
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.values import Klass, State, Unit
from ..syntax.definitions import plain_values
from ..syntax.nodes import dotted
from ..syntax.walk import descendants
from ..training.draws import compiled, random_transform
from ..training.row_code import has_workers, run_for_rows
from .differences import chosen_from


def alike_draws(state: State, unit: Unit, reach: Reach) -> Iterator[Count]:
    """The calls in a module by which a data set draws the same numbers on all processes, and those that seed torch
    with one."""
    for node in (n for n in unit.names.calls if n in _for_rows(state, reach)):
        record = state.calls[node]
        if compiled(state, unit, node):
            continue
        if randomness.draws_alike(outside_name(record)) and chosen_from(unit, node) is None:
            yield Count(node, "alike", dotted(node.func))
        elif randomness.seeds(outside_name(record)) == "torch" and node.args:
            if _is_alike(state, unit, node.args[0].value):
                yield Count(node, "reseeded", dotted(node.func))


def makes_alike(state: State, reach: Reach, call: cst.Call) -> bool:
    """Whether a call makes an object of a class of the program that draws for rows, and only numbers that are the same
    on all processes."""
    held = state.values.get(call.func)
    classes = [thing for thing in (held.things if held is not None else ()) if isinstance(thing, Klass)]
    bases = (name for klass in classes for base in klass.lineage() for name in base.externals)
    # a base of a package that is not random leaves it to the class
    if not classes or any(map(random_transform, bases)):
        return False
    methods = [n for klass in classes for base in klass.lineage() for n in descendants(base.node)]
    code = (code for method in methods if isinstance(method, cst.FunctionDef) for code in reach.below(method))
    calls = (node for each in code for node in reach.own(each) if isinstance(node, cst.Call) and node in state.calls)
    drawn = {n: name for n in calls if randomness.draws(name := outside_name(state.calls[n])) is not None}
    return (
        bool(drawn) and _for_rows(state, reach).issuperset(drawn) and all(map(randomness.draws_alike, drawn.values()))
    )


def _for_rows(state: State, reach: Reach) -> set[cst.CSTNode]:
    """The calls that run for the rows of a data set in the process that trains."""
    found = run_for_rows(state, reach, lambda loader: not has_workers(loader, state))
    return state.once(_for_rows, lambda: {n for _, nodes in found for n in nodes if n in state.calls})


def _is_alike(state: State, unit: Unit, seed: cst.BaseExpression) -> bool:
    """Whether a seed is a constant, or drawn from a generator that is equal on all processes."""
    values = plain_values(unit.names, seed) if isinstance(seed, cst.Name) else [seed]
    for value in values:
        record = state.calls.get(value) if isinstance(value, cst.Call) else None
        alike = record is not None and randomness.draws_alike(outside_name(record))
        if not alike and not isinstance(value, cst.Integer):
            return False
    return bool(values)
