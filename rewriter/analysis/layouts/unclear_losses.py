"""Losses that are not known to be a mean or a sum over the rows, where each process has its shard of the batch."""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...findings import Cause, Finding
from ..dataflow.values import CallRecord, State, Unit
from ..syntax.walk import descendants
from ..training.gradient_path import backward_operand
from ..training.training import Training
from .engine.layout import Layout, Unclear, held
from .engine.pointwise import unknown_in
from .loop_layouts import layouts_of
from .loss_reductions import unscaled


def unclear_losses(state: State, unit: Unit, training: Training, shared: Container[cst.CSTNode]) -> Iterator[Finding]:
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


def _finding(unit: Unit, record: CallRecord, loss: cst.BaseExpression, found: Unclear) -> Finding:
    text = record.unit.names.module.code_for_node(loss)
    node = found.node if found.node in unit.names.parents else record.node if record.unit is unit else None
    cause = Cause(found.node, found.reason)
    if found.joint:
        return Finding(
            "weighted-mean",
            node,
            f"`{text}` is no mean and no sum over the rows of a batch ({found.reason}): with the global batch kept "
            "each process computes it of its own shard, so the gradient is another one than the original's",
            "no action needed if this term may be that of a smaller batch; otherwise leave out --keep-global-batch: "
            "each process then takes whole batches of the script's size",
            cause=cause,
            case="no-mean",
        )
    taken = "sum" if found.near == "sum" else "mean"
    otherwise = "" if taken == "sum" else f'if it is a sum, write accelerator.backward({text}, reduction="sum"); '
    return Finding(
        "loss-reduction",
        node,
        f"it is not known whether `{text}` is a mean or a sum over the rows of a batch ({found.reason}): with the "
        "global batch kept each process computes it of its own shard, and anything else gives another gradient",
        f"no action needed if it is a {taken} over the rows; --verify shows it; {otherwise}otherwise leave out "
        "--keep-global-batch: each process then takes whole batches of the script's size",
        cause=cause,
        case="global-batch",
    )
