"""Which expressions keep one result for each row of a batch, so that they can be gathered as rows."""

from __future__ import annotations

import libcst as cst

from ...facts.roles import TENSORS
from ...facts.torch_api import questions
from ..dataflow.callees import method_name
from ..dataflow.values import State, origins
from ..training.training import Training


def by_rows(state: State, training: Training, value: cst.BaseExpression) -> bool:
    """Whether an expression gives one result for each row of the batch, as far as can be seen."""
    if isinstance(value, cst.Call):
        if value in training.forwards or _keeps_rows(value):
            return True
        operand = value.func.value if isinstance(value.func, cst.Attribute) else None
        own = operand is not None and bool(origins(state.values.get(operand), *TENSORS))
        if operand is None or not _row_by_row(value, 0 if own else 1):
            return False
        if own:
            return by_rows(state, training, operand)
        return bool(value.args) and by_rows(state, training, value.args[0].value)
    if isinstance(value, (cst.Attribute, cst.Subscript)):
        return by_rows(state, training, value.value)
    if isinstance(value, cst.Comparison):
        return by_rows(state, training, value.left)
    return isinstance(value, cst.Name) and bool(origins(state.values.get(value), *TENSORS))


def _keeps_rows(call: cst.Call) -> bool:
    """``reduction="none"``: a loss for each row."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == "reduction" and isinstance(arg.value, cst.SimpleString):
            return arg.value.evaluated_value == "none"
    return False


def _row_by_row(call: cst.Call, before: int) -> bool:
    """``scores.tanh()``, ``scores.max(1)``, ``torch.sum(scores, dim=-1)``: each row keeps its result; ``before`` counts
    the arguments before those that the method has."""
    kept = questions.keeps_rows(method_name(call))
    if not isinstance(kept, questions.Along):
        return kept
    value = dimension_of(call, None if kept.position is None else kept.position + before)
    if value is None:
        return not kept.reduces
    if isinstance(value, cst.Integer):
        return value.evaluated_value > 0
    return isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Minus)


def dimension_of(call: cst.Call, position: int | None) -> cst.BaseExpression | None:
    """The dimension that a call is asked for, by keyword or position; None where it is asked for none."""
    named = [a.value for a in call.args if a.keyword is not None and a.keyword.value in ("dim", "axis")]
    plain = [a.value for a in call.args if a.keyword is None]
    if named or position is None:
        return named[0] if named else None
    return plain[position] if len(plain) > position else None
