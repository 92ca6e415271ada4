"""What an old script calls and PyTorch does not have any more: it fails there on one device, too."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.refusals import NoEntries, RemovedNext
from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..training.gradient_path import backward_operand
from ..training.training import Training


def outdated(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Reason]:
    """The calls of ``next`` as a method where the training has its batches without, and entries of losses."""
    if training.train_loops:
        yield from (found for where, found in removed_nexts(state, reach, feeds=False) if where is unit)
    yield from _entries(state, unit, reach, training)


def removed_nexts(state: State, reach: Reach, *, feeds: bool) -> Iterator[tuple[Unit, RemovedNext]]:
    """The calls of ``next`` as a method of a loader's iterator: ``batches = iter(loader); batches.next()``."""
    for call, record in state.calls.items():
        if method_name(call) != "next" or call.args or not isinstance(call.func, cst.Attribute):
            continue
        held = origins(record.receiver, Role.LOADER)
        if held and not reach.called(call) and reach.function_of(call) in reach.reachable:
            yield record.unit, RemovedNext(call, record.unit.names.module.code_for_node(call.func.value), feeds)


def _entries(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Reason]:
    """``loss.data[0]``: what a backward pass starts from is one number, and has no entries since PyTorch 0.5."""
    losses = (backward_operand(r) for r in training.backwards if r.unit is unit and not r.node.args)
    bindings = {unit.names.binding(loss) for loss in losses if isinstance(loss, cst.Name)} - {None}
    for node in unit.names.every(cst.Subscript) if bindings else ():
        held = node.value
        named = held.value if isinstance(held, cst.Attribute) and held.attr.value == "data" else None
        if isinstance(named, cst.Name) and unit.names.binding(named) in bindings:
            if unit.names.function(node) in reach.reachable:
                text = unit.names.module.code_for_node(node.with_changes(lpar=[], rpar=[]))
                yield NoEntries(node, text, named.value)
