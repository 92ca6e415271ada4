"""Distributions that a model gives, ``Normal(mean, std)``: what is asked of them has rows; they cannot be gathered."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ...facts.module import Gather
from ..dataflow.callees import outside_name
from ..dataflow.values import State, Unit
from ..syntax.walk import nodes_in

_ASKED = frozenset("log_prob entropy sample rsample sample_n cdf icdf enumerate_support".split())
"""Methods of distributions that no tensor has."""


def distribution(state: State, unit: Unit, loop: cst.CSTNode, gathers: Iterable[Gather]) -> str:
    """The variable among those to be gathered in a loop that holds a distribution; empty for none."""
    wanted = {name for gather in gathers for name in gather.names}
    for name in nodes_in(loop, cst.Name) if wanted else ():
        if name.value in wanted and _is_asked(state, unit, name):
            return name.value
    return ""


def _is_asked(state: State, unit: Unit, name: cst.Name) -> bool:
    """``dist.log_prob(action)``, ``kl_divergence(dist, prior)``."""
    around = unit.names.parents.get(name)
    call = unit.names.parents.get(around) if isinstance(around, (cst.Attribute, cst.Arg)) else None
    if not isinstance(call, cst.Call):
        return False
    if isinstance(around, cst.Attribute):
        return call.func is around and around.value is name and around.attr.value in _ASKED
    record = state.calls.get(call)
    return record is not None and outside_name(record).startswith("torch.distributions.")
