"""Random numbers that change weights, or their gradients, by hand: ``p.data += std * torch.randn_like(p)``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.roles import Origin
from ..dataflow.call_graph import Reach
from ..dataflow.values import Unit
from ..syntax.definitions import seen_values
from ..syntax.nodes import keyword
from ..syntax.walk import descendants
from .draws import drawn
from .weight_changes import weight_changes


class WeightNoise(NamedTuple):
    """One draw of torch's own generator that changes weights, or their gradients."""

    draw: cst.Call
    models: frozenset[Origin]
    """The models whose weights they are."""
    gradients: bool


def weight_noise(reach: Reach) -> Iterator[WeightNoise]:
    """The draws that change the weights of a model in place, or the gradients that an optimizer then steps with."""
    for change in weight_changes(reach):
        for value in change.values:
            for draw in torch_draws(reach, change.unit, value):
                yield WeightNoise(draw, change.models, change.gradients)


def torch_draws(reach: Reach, unit: Unit, value: cst.BaseExpression) -> Iterator[cst.Call]:
    """The draws on which a value depends, in its expression, in its variables and in what functions return."""
    pending, seen = [(unit, value)], {value}
    while pending:
        owner, expression = pending.pop()
        found: list[tuple[Unit, cst.BaseExpression]] = []
        for node in descendants(expression):
            if isinstance(node, cst.Name) and node in owner.names.within:
                found += [(owner, each) for each in seen_values(owner.names, node)]
            elif isinstance(node, cst.Call) and node in reach.state.calls:
                made = drawn(reach.state.calls[node])
                if made is not None and made.generator == "torch" and keyword(node, "generator") is None:
                    yield node
                found += list(_returned(reach, node))
        pending += [each for each in found if each[1] not in seen]
        seen.update(each for _, each in found)


def _returned(reach: Reach, call: cst.Call) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    for function in reach.called(call):
        for node in reach.own(function):
            if isinstance(node, cst.Return) and node.value is not None:
                yield reach.unit(function), node.value
