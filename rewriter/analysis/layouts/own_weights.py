"""Weights, or their gradients, that are changed by hand by what each process computes from its own shard."""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...facts.module import Gather
from ...facts.reasons import Reason
from ...facts.reasons.losses import OwnWeights
from ...facts.roles import Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import Unit, origins
from ..syntax.nodes import keyword
from ..syntax.scopes import Binding
from ..syntax.walk import nodes_in
from ..training.weight_changes import WeightChange, weight_changes
from ..training.weight_noise import torch_draws
from .divergence import Equality
from .losses import Reducer

_BECAUSE = "weights change by {}, and each process holds only its shard"


def own_weights(reducer: Reducer, unit: Unit) -> Iterator[Gather | Reason]:
    """What makes such changes equal on all processes: a loss that is reduced first; or a finding."""
    equality = reducer.equality
    changes = reducer.state.once(weight_changes, lambda: list(weight_changes(equality.reach)))
    for change in (*changes, *_given(equality.reach, unit)):
        if change.unit is not unit:
            continue
        itself = {b for n in change.changed if isinstance(n, cst.Name) and (b := unit.names.binding(n)) is not None}
        own = [v for v in change.values if _is_own(equality, unit, v, itself)]
        gathers = [reducer.whole(unit, value, _BECAUSE, given=itself) for value in own]
        if all(gathers):
            yield from (gather for found in gathers for gather in found or ())
        else:
            yield OwnWeights(change.node, unit.names.one_line(own[0]), change.gradients)


def _is_own(equality: Equality, unit: Unit, value: cst.BaseExpression, itself: Container[Binding]) -> bool:
    """Whether a value is one process's own, by more than the weights that it changes; noise is reported as such."""
    names = equality.local_names(unit, value)
    if not equality.is_local(unit, value) or any(torch_draws(equality.reach, unit, value)):
        return False
    if any(keyword(n, "generator") is not None for n in nodes_in(value, cst.Call)):
        return False  # noise of a generator that is the same everywhere
    return not names or any(unit.names.binding(name) not in itself for name in names)


def _given(reach: Reach, unit: Unit) -> Iterator[WeightChange]:
    """The states that models are given, and the limits of their gradients."""
    for call in unit.names.calls:
        record = reach.state.calls.get(call)
        if record is None or unit.names.function(call) not in reach.reachable:
            continue
        models = frozenset(origins(record.receiver, Role.MODEL))
        if models and method_name(call) == "load_state_dict":
            yield WeightChange(unit, call, (), [arg.value for arg in call.args[:1]], models, gradients=False)
        elif questions.clips(outside_name(record)):
            yield WeightChange(unit, call, (), [arg.value for arg in call.args[1:]], models, gradients=True)
