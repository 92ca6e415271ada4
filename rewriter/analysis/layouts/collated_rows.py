"""
Whether a `collate_fn` makes one row of each sample, so that a batch has as many rows as a loader was asked for; and
whether it leaves some out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...findings import Finding
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import Function, Unit
from ..syntax.definitions import unshadowed
from ..syntax.nodes import keyword, positional
from ..training.gradient_path import backward_operand
from ..training.training import Training
from .engine.interpreter import Interpreter
from .engine.layout import Each, Layout, Shard, ShardRow, Unclear, held
from .engine.memory import Seeds
from .loss_reductions import reduction_of
from .losses import weighted_mean

_CHOOSING = (cst.If, cst.CompIf, cst.Slice, cst.While, cst.Try)
"""By these a function may leave samples out."""


def keeps_rows(reach: Reach, collate: cst.BaseExpression) -> bool:
    """Whether functions of the script, and nothing else, collate; and each stacks its samples, one row for each."""
    slot = reach.state.values.get(collate)
    things = list(slot.things) if slot is not None else []
    return bool(things) and all(isinstance(thing, Function) and _stacks(reach, thing) for thing in things)


def _stacks(reach: Reach, function: Function) -> bool:
    names, params = function.unit.names, positional(function.node)
    samples = names.scopes[function.node].bindings.get(params[0].name.value) if params else None
    if samples is None or len(params) > 1:
        return False
    for node in reach.runs(function.node.body, function.unit):
        if isinstance(node, _CHOOSING) or (isinstance(node, cst.Call) and method_name(node) == "filter"):
            return False
    whole = (read for read in samples.reads if set(unshadowed(names, samples, read)) <= {*params, params[0].name})
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
    slot = reach.state.values.get(collate)
    pending = [thing for thing in (slot.things if slot is not None else ()) if isinstance(thing, Function)]
    seen: set[Function] = set()
    while pending:
        function = pending.pop()
        if function in seen:
            continue
        seen.add(function)
        for node in reach.own(function.node):
            if _chooses(function, node):
                return function, node
            if isinstance(node, cst.Call) and node.args and _is_samples(function, node.args[0].value):
                pending += [reach.unit(code).function(code) for code in reach.called(node)]
    return None


def _is_samples(function: Function, node: cst.CSTNode) -> bool:
    """Whether an expression is the list of samples that a function is given."""
    names, params = function.unit.names, positional(function.node)
    samples = names.scopes[function.node].bindings.get(params[0].name.value) if params else None
    return isinstance(node, cst.Name) and samples is not None and names.binding(node) is samples


def _chooses(function: Function, node: cst.CSTNode) -> bool:
    """Whether samples are left out at a node: by a condition of a comprehension, ``filter``, or ``continue``."""
    if isinstance(node, cst.CompFor):
        return bool(node.ifs) and _is_samples(function, node.iter)
    if isinstance(node, cst.Call):
        return method_name(node) == "filter" and len(node.args) == 2 and _is_samples(function, node.args[1].value)
    if not isinstance(node, cst.Continue):
        return False
    loop = next(function.unit.names.enclosing(node, cst.For, cst.While), None)
    return isinstance(loop, cst.For) and _is_samples(function, loop.iter)


def left_out(reach: Reach, unit: Unit, training: Training, loops: Iterable[cst.CSTNode]) -> Iterator[Finding]:
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
            yield weighted_mean(found[1], "averages the loss over the samples that are left here of its own shard")
