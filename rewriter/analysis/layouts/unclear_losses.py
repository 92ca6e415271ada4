"""Losses that are not known to be a mean or a sum over the rows, where each process has its shard of the batch."""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.losses import NoMean, UnclearLoss
from ..dataflow.values import CallRecord, State, Unit
from ..syntax.walk import descendants
from ..training.gradient_path import backward_operand
from ..training.training import Training
from .engine.layout import Layout, Unclear, held
from .engine.pointwise import unknown_in
from .loop_layouts import layouts_of
from .loss_reductions import unscaled


def unclear_losses(state: State, unit: Unit, training: Training, shared: Container[cst.CSTNode]) -> Iterator[Reason]:
    """
    What is said of the losses of a module with the global batch kept: one finding.

    Each process's loss is taken for the mean, or for a part of the sum, over the rows of the batch. With whole batches
    for each process, every one of them computes what the script does.

    Args:
        state: the solved program.
        unit: the module.
        reach: its call graph.
        training: what trains in it.
        shared: the loops whose batches are cut into shards.
    """
    for loop in training.train_loops:
        if loop not in unit.names.parents or loop not in shared or not state.loaders.get(loop):
            continue
        if not isinstance(loop, cst.For):
            continue
        layouts = layouts_of(state).loop(unit, loop)
        inside = set(descendants(loop))
        for record in training.backwards:
            layout = layouts.backward(record.node)
            if layout is None and record.node not in inside:
                continue
            loss = unscaled(state, backward_operand(record))
            if layout is None or loss is not backward_operand(record):
                layout = layouts.value(loss)
            found = _unclear(layout)
            if found is not None:
                yield _finding(unit, record, loss, found)
                return


def _unclear(layout: Layout) -> Unclear | None:
    return next((one for part in held(layout) if (one := unknown_in(part)) is not None), None)


def _finding(unit: Unit, record: CallRecord, loss: cst.BaseExpression, found: Unclear) -> Reason:
    text = record.unit.names.module.code_for_node(loss)
    node = found.node if found.node in unit.names.parents else record.node if record.unit is unit else None
    if found.joint:
        return NoMean(node, text, found.reason, found.node)
    return UnclearLoss(node, text, found.reason, found.node, found.near == "sum")
