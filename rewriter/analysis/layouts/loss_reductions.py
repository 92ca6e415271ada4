"""What the losses of a program are over the rows of a batch, by the layouts: a mean, a sum, or what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.roles import Role
from ...findings import Finding
from ..dataflow.values import CallRecord, State, Unit, origins
from ..training.gradient_path import backward_operand
from ..training.training import Training
from .engine.layout import Layout, Partial, Unclear, held, join_all
from .loop_layouts import LoopLayouts, layouts_of
from .reductions import open_reduction, reduction_of


class LossWord(NamedTuple):
    """What a loss is over the rows of its batch."""

    word: str
    """``mean`` or ``sum``; ``mixed`` for a sum of both. What is not known is taken for the mean."""
    reason: str = ""
    """Why it is not known; empty where it is."""
    node: cst.CSTNode | None = None
    """What decides it, where it is not known."""


class LossReductions:
    """Answers for one program."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[CallRecord, LossWord] = {}

    def of(self, record: CallRecord) -> LossWord:
        """What a backward pass starts from."""
        if record not in self._known:
            self._known[record] = self._found(record)
        return self._known[record]

    def _found(self, record: CallRecord) -> LossWord:
        loss = unscaled(self._state, backward_operand(record))
        layouts = [self._in(loop, record, loss) for loop in layouts_of(self._state).around(record.unit, record.node)]
        told = _told(join_all(layouts)) if layouts else None
        if told is not None:
            return told
        unclear = open_reduction(self._state, record.unit, loss)
        if unclear is not None:
            text = unclear[0].names.module.code_for_node(unclear[1])
            return LossWord("mean", f"which reduction `{text}` has is an option, or is computed", unclear[1])
        return LossWord(reduction_of(self._state, record.unit, loss))

    def _in(self, loop: LoopLayouts, record: CallRecord, loss: cst.BaseExpression) -> Layout:
        layout = loop.backward(record.node) if loss is backward_operand(record) else None
        return layout if layout is not None else loop.value(loss)


def unscaled(state: State, loss: cst.BaseExpression) -> cst.BaseExpression:
    """The loss in ``scaler.scale(loss)``."""
    if isinstance(loss, cst.Call) and isinstance(loss.func, cst.Attribute) and len(loss.args) == 1:
        if origins(state.values.get(loss.func.value), Role.SCALER):
            return loss.args[0].value
    return loss


def _told(layout: Layout) -> LossWord | None:
    """What a layout says; None where the layout is not known."""
    parts = list(held(layout))
    words = {part.op for part in parts if isinstance(part, Partial)}
    if len(words) == 2 and all(isinstance(part, Partial) for part in parts):
        return LossWord("mean", "it is a mean on one path of the program and a sum on another")
    if len(words) == 1 and not any(isinstance(part, Unclear) for part in parts):
        return LossWord(words.pop())
    return None


def open_losses(reductions: LossReductions, unit: Unit, training: Training) -> Iterator[Finding]:
    """What is said of the losses of a module that are taken for a mean, and may be a sum."""
    for record in training.backwards:
        found = reductions.of(record)
        if record.unit is unit and found.reason:
            loss = unit.names.module.code_for_node(backward_operand(record))
            yield Finding(
                "loss-reduction",
                record.node,
                f"it is not known whether `{loss}` is a mean or a sum over the rows of a batch ({found.reason}): it is "
                "taken for a mean, and the gradients of the processes are averaged",
                'no action needed if it is a mean; if it is a sum, write accelerator.backward(loss, reduction="sum")',
            )
