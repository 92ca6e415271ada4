"""What the losses of a program are over the rows of a batch, by the layouts: a mean, a sum, or what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.losses import OpenReduction
from ...facts.roles import Role
from ..dataflow.values import CallRecord, State, Unit, origins
from ..training.gradient_path import backward_operand
from ..training.training import Training
from .engine.layout import REPLICATED, Layout, Shard, held, join_all, reduces, words_of
from .engine.pointwise import unknown_in
from .loop_layouts import LoopLayouts, layouts_of


def reduction_of(state: State, unit: Unit, expression: cst.BaseExpression) -> str:
    """
    ``mean``, ``sum``, or ``mixed`` for what an expression gives; ``mean`` where nothing says otherwise.

    ``rows`` is a loss for each row, which nothing has reduced yet.
    """
    return _word(layouts_of(state).value(unit, expression))


def reduces_rows(state: State, unit: Unit, expression: cst.BaseExpression) -> bool:
    """Whether an expression is certainly one number that the rows of a batch were reduced to."""
    return reduces(layouts_of(state).value(unit, expression))


def _word(layout: Layout) -> str:
    parts = list(held(layout))
    words = words_of(parts)
    if words:
        return "mixed" if "mixed" in words else words.pop() if len(words) == 1 else "mean"
    return "rows" if parts and all(isinstance(part, Shard) and part.assumed is None for part in parts) else "mean"


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
        return _told(backward_layout(self._state, record))


def backward_layout(state: State, record: CallRecord) -> Layout:
    """The layout of what a backward pass starts from."""
    loss = unscaled(state, backward_operand(record))
    loops = layouts_of(state).around(record.unit, record.node)
    return join_all(_in(loop, record, loss) for loop in loops) if loops else REPLICATED


def _in(loop: LoopLayouts, record: CallRecord, loss: cst.BaseExpression) -> Layout:
    layout = loop.backward(record.node) if loss is backward_operand(record) else None
    return layout if layout is not None else loop.value(loss)


def unscaled(state: State, loss: cst.BaseExpression) -> cst.BaseExpression:
    """The loss in ``scaler.scale(loss)``."""
    if isinstance(loss, cst.Call) and isinstance(loss.func, cst.Attribute) and len(loss.args) == 1:
        if origins(state.values.get(loss.func.value), Role.SCALER):
            return loss.args[0].value
    return loss


def _told(layout: Layout) -> LossWord:
    """What a layout says. What is known to be neither, and what no row goes into, is averaged as a mean is."""
    parts = list(held(layout))
    words = words_of(parts)
    if "mixed" in words:
        return LossWord("mixed")
    if len(words) > 1:
        return LossWord("mean", "it is a mean on one path of the program and a sum on another")
    unknown = (one for part in parts if (one := unknown_in(part)) is not None)
    lost = next((one for one in unknown if not one.joint and not one.near), None)
    if lost is not None:
        return LossWord("mean", lost.reason, lost.node)
    return LossWord(words.pop() if words else "mean")


def open_losses(reductions: LossReductions, unit: Unit, training: Training) -> Iterator[Reason]:
    """What is said of the losses of a module that are taken for a mean, and may be a sum."""
    for record in training.backwards:
        found = reductions.of(record)
        if record.unit is unit and found.reason:
            loss = unit.names.module.code_for_node(backward_operand(record))
            yield OpenReduction(record.node, loss, found.reason, backward_operand(record), found.node)
