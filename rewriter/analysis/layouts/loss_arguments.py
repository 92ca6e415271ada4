"""What losses are asked for by their arguments: the reduction over the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from ...facts.roles import Origin
from ...facts.torch_api.kinds.training import Criterion, Loss
from ..dataflow.constant_values import constants_of
from ..dataflow.constants import Text, Values
from ..dataflow.values import State

Constant = Callable[[str, int | None], Values]
"""What a call gives by a name or at a position, as far as constants say."""
_NO: Values = frozenset({False})
_YES: Values = frozenset({True})
_SPELLED = {"elementwise_mean": "mean"}


def asked_reduction(ask: Constant, kind: Loss | Criterion) -> str:
    """The reduction that a loss function, or the constructor of one, is asked for; empty where that is not known."""
    asked, average = ask("reduction", kind.reduction), ask("size_average", kind.average)
    if ask("reduce", None) == _NO:
        return "none"
    if asked is None or average is None or len(asked) > 1 or len(average) > 1:
        return ""
    if average == _NO:
        return "sum"
    word = next(iter(asked), None)
    if word is None or average == _YES:
        return kind.default if word is None else "mean"
    return _SPELLED.get(word.end, word.end) if isinstance(word, Text) and word.whole else ""


def built_with(state: State, module: Origin, kind: Criterion) -> str:
    """The reduction that a loss module is built with; empty where that is not known, or another one is set later."""
    call, constants = module.node, constants_of(state)
    record = state.calls.get(call) if isinstance(call, cst.Call) else None
    if record is None:
        return kind.default
    asked = asked_reduction(lambda name, place: constants.argument(record.unit, record.node, name, place), kind)
    later, same = constants.set_later(module, "reduction"), frozenset({Text(asked)})
    return asked if not later or later == same else ""
