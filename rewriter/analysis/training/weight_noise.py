"""Random numbers that change weights, or their gradients, by hand: ``p.data += std * torch.randn_like(p)``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Reach
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import seen_values
from ..syntax.nodes import keyword
from ..syntax.walk import descendants
from .draws import drawn
from .training import whole

_PARTS = frozenset({"data", "grad"})


class WeightNoise(NamedTuple):
    """One draw of torch's own generator that changes weights, or their gradients."""

    draw: cst.Call
    models: frozenset[Origin]
    """The models whose weights they are."""
    gradients: bool


def weight_noise(state: State, reach: Reach) -> Iterator[WeightNoise]:
    """The draws that change the weights of a model in place, or the gradients that an optimizer then steps with."""
    for unit in reach.units:
        for node in unit.names.every(cst.Assign, cst.AugAssign, cst.Call):
            target, values = _change(node)
            if target is None or unit.names.function(node) not in reach.reachable:
                continue
            held = _weights(state, target) or _stepped(state, unit, target)
            if not held:
                continue
            gradients = any(isinstance(n, cst.Attribute) and n.attr.value == "grad" for n in _chain(target))
            for value in values:
                for draw in _draws(reach, unit, value):
                    yield WeightNoise(draw, held, gradients)


def _change(node: cst.CSTNode) -> tuple[cst.BaseExpression | None, list[cst.BaseExpression]]:
    """What a statement or a call changes in place, and what it changes it by."""
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        target = node.targets[0].target
        named = isinstance(target, cst.Attribute) and target.attr.value in _PARTS
        return (target if named else None), [node.value]
    if isinstance(node, cst.AugAssign):
        return node.target, [node.value]
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value.endswith("_"):
        return node.func.value, [arg.value for arg in node.args]
    return None, []


def _weights(state: State, node: cst.BaseExpression) -> frozenset[Origin]:
    """The models of which an expression gives weights or gradients: ``p``, ``p.data``, ``p.grad.data``."""
    held = (o for part in _chain(node) for o in origins(state.values.get(part), Role.PARAMETERS))
    return frozenset(whole(state, o.source) for o in held if o.source is not None)


def _stepped(state: State, unit: Unit, node: cst.BaseExpression) -> frozenset[Origin]:
    """The models whose weights an optimizer of the script's own steps: in its class, a variable of a loop."""
    around = next((n for n in unit.names.ancestors(node) if isinstance(n, cst.ClassDef)), None)
    klass = unit.classes.get(around) if around is not None else None
    base = list(_chain(node))[-1]
    binding = unit.names.binding(base) if isinstance(base, cst.Name) else None
    if klass is None or klass.role is not Role.OPTIMIZER or binding is None:
        return frozenset()
    if not any(isinstance(next(unit.names.enclosing(d, cst.For), None), cst.For) for d in binding.definitions):
        return frozenset()
    made = [o for o, own in state.klass.items() if isinstance(o, Origin) and klass in own.lineage()]
    held = (params for optimizer in made for params in origins(state.related.get(optimizer), Role.PARAMETERS))
    return frozenset(whole(state, params.source) for params in held if params.source is not None)


def _chain(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    yield node
    while isinstance(node, cst.Attribute) and node.attr.value in _PARTS:
        node = node.value
        yield node


def _draws(reach: Reach, unit: Unit, value: cst.BaseExpression) -> Iterator[cst.Call]:
    """The draws on which a value depends, in its expression, in its variables and in what functions return."""
    pending, seen = [(unit, value)], {value}
    while pending:
        owner, expression = pending.pop()
        found: list[tuple[Unit, cst.BaseExpression]] = []
        for node in (expression, *descendants(expression)):
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
