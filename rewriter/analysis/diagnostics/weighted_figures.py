"""
Losses of evaluations that divide by the weights of the rows in a batch, or by the rows that are not left out.

The figure of an evaluation is averaged over its batches, and depends on which rows are in one batch together: on N
processes those of N of the script's batches.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.reasons import Reason
from ...facts.reasons.losses import WeightedFigure
from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.values import Unit, origins
from ..layouts.loss_reductions import reduction_of
from ..training.training import Training
from .differences import divisors


def weighted_figures(
    reach: Reach, unit: Unit, training: Training, shared: Container[cst.CSTNode], gathers: Sequence[Gather]
) -> Iterator[Reason]:
    """
    The losses of a module that evaluations over shards average.

    ``gathers``: those of the module, where the batches of all processes are together the script's own: what is
    computed from them is as in the script.
    """
    state = reach.state
    together = {g.node for g in gathers if g.form is Form.GATHER}
    seen: set[cst.CSTNode] = set()
    for loop in (loop for loop in training.eval_loops if loop in shared and isinstance(loop, cst.For)):
        home = reach.unit_of(loop, unit)
        run = list(reach.runs(loop.body, home))
        if not together.isdisjoint(run):
            continue
        for call in run:
            record = state.calls.get(call) if isinstance(call, cst.Call) else None
            if record is None or record.unit is not unit or call in seen:
                continue
            seen.add(call)
            made = next((o for o in origins(record.result, Role.LOSS) if o.node is call), None)
            if made is None:
                continue
            _, names = divisors(state, reach, made)
            if names and reduction_of(state, unit, record.node) == "mean":
                yield WeightedFigure(record.node, names[0])
