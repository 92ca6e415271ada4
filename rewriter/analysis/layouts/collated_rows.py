"""
Whether a `collate_fn` makes one row of each sample, so that a batch has as many rows as a loader was asked for; and
whether it leaves some out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.losses import WeightedMean
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.solver import Thing
from ..dataflow.values import Bound, Function, Instance, Unit
from ..syntax.definitions import unshadowed
from ..syntax.nodes import keyword, positional
from ..syntax.scopes import Binding
from ..training.gradient_path import backward_operand
from ..training.training import Training
from .engine.interpreter import Interpreter
from .engine.layout import Each, Layout, Shard, ShardRow, Unclear, held
from .engine.memory import Seeds
from .loss_reductions import reduction_of

_CHOOSING = (cst.If, cst.CompIf, cst.Slice, cst.While, cst.Try)
"""By these a function may leave samples out."""


class _Collator(NamedTuple):
    """A function of the script that makes a batch of samples."""

    function: Function
    samples: Binding
    """Its parameter that holds them."""


def keeps_rows(reach: Reach, collate: cst.BaseExpression) -> bool:
    """Whether functions of the script, and nothing else, collate; and each stacks its samples, one row for each."""
    found = [_collator(reach, thing, collate) for thing in _things(reach, collate)]
    return bool(found) and all(each is not None and _stacks(reach, each) for each in found)


def _things(reach: Reach, collate: cst.BaseExpression) -> list[Thing]:
    slot = reach.state.values.get(collate)
    return list(slot.things) if slot is not None else []


def _collator(reach: Reach, thing: Thing, collate: cst.BaseExpression) -> _Collator | None:
    """The function that something runs which collates: itself, a method, or that of an object that is called."""
    if isinstance(thing, Bound):
        found = reach.state.method_of(thing)
    elif isinstance(thing, Instance):
        found = thing.klass.method("__call__")
    else:
        found = thing if isinstance(thing, Function) else None
    if found is None:
        return None
    scope = found.unit.names.within.get(found.node)
    of_class = scope is not None and isinstance(scope.node, cst.ClassDef) and isinstance(found.node, cst.FunctionDef)
    place = int(of_class and not found.decorated("staticmethod"))  # after the object
    record = reach.state.calls.get(collate) if isinstance(collate, cst.Call) else None
    if record is not None and outside_name(record) == "functools.partial":
        place += sum(arg.keyword is None for arg in record.node.args) - 1
    params = positional(found.node)
    if not params:
        return None
    last = params[min(place, len(params) - 1)].name.value  # of ``Rows.collate`` the class's own function, too
    return _Collator(found, found.unit.names.scopes[found.node].bindings[last])


def _stacks(reach: Reach, collator: _Collator) -> bool:
    function, samples = collator
    names, params = function.unit.names, positional(function.node)
    for node in reach.runs(function.node.body, function.unit):
        if isinstance(node, _CHOOSING) or (isinstance(node, cst.Call) and method_name(node) == "filter"):
            return False
    given = {node for param in params for node in (param, param.name)}
    whole = (read for read in samples.reads if given.issuperset(unshadowed(names, samples, read)))
    rows: dict[cst.CSTNode, Layout] = {read: Each(ShardRow(), rows=True) for read in whole}
    walk = Interpreter(reach.state, reach, Seeds(rows))
    found = [part for value in _given(function) for part in held(walk.value(value, function.unit))]
    stacked = [part for part in found if isinstance(part, Shard)]
    return bool(stacked) and not any(
        isinstance(part, Unclear) or (isinstance(part, Shard) and (part.dim > 0 or part.chosen)) for part in found
    )


def _given(function: Function) -> list[cst.BaseExpression]:
    """What a function returns."""
    if isinstance(function.node, cst.Lambda):
        return [function.node.body]
    returned = function.unit.names.returns.get(function.node, ())
    return [given.value for given in returned if given.value is not None]


def leaves_out(reach: Reach, collate: cst.BaseExpression) -> tuple[Function, cst.CSTNode] | None:
    """Where a function of the script that collates leaves some of its samples out, and which it is."""
    pending = [_collator(reach, thing, collate) for thing in _things(reach, collate)]
    seen: set[_Collator] = set()
    while pending:
        each = pending.pop()
        if each is None or each in seen:
            continue
        seen.add(each)
        for node in reach.own(each.function.node):
            if _chooses(each, node):
                return each.function, node
            if isinstance(node, cst.Call) and node.args and _is_samples(each, node.args[0].value):
                record = reach.state.calls.get(node)
                pending += [_collator(reach, thing, node.func) for thing in (record.callees if record else ())]
    return None


def _is_samples(collator: _Collator, node: cst.CSTNode) -> bool:
    """Whether an expression is the list of samples that a function is given."""
    return isinstance(node, cst.Name) and collator.function.unit.names.binding(node) is collator.samples


def _chooses(collator: _Collator, node: cst.CSTNode) -> bool:
    """Whether samples are left out at a node: by a condition of a comprehension, ``filter``, or ``continue``."""
    if isinstance(node, cst.CompFor):
        return bool(node.ifs) and _is_samples(collator, node.iter)
    if isinstance(node, cst.Call):
        return method_name(node) == "filter" and len(node.args) == 2 and _is_samples(collator, node.args[1].value)
    if not isinstance(node, cst.Continue):
        return False
    loop = next(collator.function.unit.names.enclosing(node, cst.For, cst.While), None)
    return isinstance(loop, cst.For) and _is_samples(collator, loop.iter)


def left_out(reach: Reach, unit: Unit, training: Training, loops: Iterable[cst.CSTNode]) -> Iterator[Reason]:
    """
    What is said of the samples that the loaders of training loops leave out, of a module.

    ``loops``: those over prepared loaders. A sum over the rows of all processes is the same whatever each has kept.
    """
    summed = [reduction_of(reach.state, r.unit, backward_operand(r)) == "sum" for r in training.backwards]
    if summed and all(summed):
        return
    told: set[cst.CSTNode] = set()
    for loader in (loader for loop in loops if loop in training.train_loops for loader in reach.loaders(loop)):
        collate = keyword(loader.node, "collate_fn", 6) if isinstance(loader.node, cst.Call) else None
        found = leaves_out(reach, collate) if collate is not None else None
        if found is not None and found[0].unit is unit and found[1] not in told:
            told.add(found[1])
            yield WeightedMean(found[1], "averages the loss over the samples that are left here of its own shard")
