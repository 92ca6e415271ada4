"""Whether a `collate_fn` makes one row of each sample, so that a batch has as many rows as a loader was asked for."""

from __future__ import annotations

import libcst as cst

from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import Function
from ..syntax.definitions import unshadowed
from ..syntax.nodes import positional
from .engine.interpreter import Interpreter
from .engine.layout import Each, Layout, Shard, ShardRow, Unclear, held
from .engine.memory import Seeds

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
