"""What metrics that combine the values of all processes by themselves, those of torchmetrics and ignite, count."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import libcst as cst

from ...facts.module import Gather
from ...facts.reasons import Reason
from ...facts.reasons.metrics import JoinedMetric, JoinedTwice
from ..dataflow.call_graph import Reach
from ..dataflow.values import State, Unit
from ..syntax.walk import nodes_in
from .loop_step import is_synchronised


def joined_metrics(
    state: State, unit: Unit, reach: Reach, shared: Container[cst.CSTNode], gathers: Iterable[Gather]
) -> Iterator[Reason]:
    """Metrics that count repeated rows, or rows that are gathered already. One finding for each of a module, in the
    first loop over a prepared loader that feeds it."""
    whole = [gather for gather in gathers if gather.node in unit.names.parents]
    told: set[str] = set()
    for loop in state.loaders:
        for call in reach.runs(loop, unit) if loop in shared and loop in unit.names.parents else ():
            if not (isinstance(call, cst.Call) and call in unit.names.parents and is_synchronised(state, call)):
                continue
            func = call.func.value if isinstance(call.func, cst.Attribute) else call.func
            name = unit.names.one_line(func)
            if name not in told:
                told.add(name)
                yield (
                    JoinedTwice(call, name)
                    if any(_reads(unit, call, gather) for gather in whole)
                    else JoinedMetric(call, name)
                )


def _reads(unit: Unit, call: cst.Call, gather: Gather) -> bool:
    """Whether a call is given what a gather before it has set anew."""
    held = {node.value for arg in call.args for node in nodes_in(arg.value, cst.Name)}
    held.update(arg.value.value for arg in call.args if isinstance(arg.value, cst.Name))
    same = unit.names.function(call) is unit.names.function(gather.node)
    return same and not held.isdisjoint(gather.set_anew) and unit.names.order(gather.node) < unit.names.order(call)
