"""
What changes weights, or their gradients, by hand: ``p.data += noise``, ``p.grad.mul_(scale)``, ``layer.weight[i] = x``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.containers import key_of
from ..dataflow.expressions import PARAMETERS
from ..dataflow.values import State, Unit, origins
from ..syntax.nodes import changed_in_place
from .training import whole

_PARTS = frozenset({"data", "grad"})
_LAYERS = frozenset({"weight", "bias"})


class WeightChange(NamedTuple):
    """One statement, or call, that changes weights or gradients in place."""

    unit: Unit
    node: cst.CSTNode
    changed: tuple[cst.BaseExpression, ...]
    """What is changed, and that of which it is a part: ``p.data``, ``p``."""
    values: list[cst.BaseExpression]
    """What it changes them by."""
    models: frozenset[Origin]
    """The models whose weights they are."""
    gradients: bool


def weight_changes(reach: Reach) -> Iterator[WeightChange]:
    """The changes of the weights of models, and of the gradients that an optimizer then steps with."""
    state = reach.state
    for unit in reach.units:
        for node in unit.names.every(cst.Assign, cst.AugAssign, cst.Call):
            target, values = _change(state, node)
            if target is None or unit.names.function(node) not in reach.reachable or _is_made(reach, unit, node):
                continue
            held = _weights(state, target) or _stepped(state, unit, target)
            if held:
                parts = tuple(_chain(target))
                gradients = any(isinstance(n, cst.Attribute) and n.attr.value == "grad" for n in parts)
                yield WeightChange(unit, node, parts, values, held, gradients)


def _change(state: State, node: cst.CSTNode) -> tuple[cst.BaseExpression | None, list[cst.BaseExpression]]:
    """What a statement or a call changes in place, and what it changes it by."""
    if isinstance(node, cst.Assign) and len(node.targets) == 1:
        target = node.targets[0].target
        part = isinstance(target, cst.Attribute) and (target.attr.value in _PARTS or _is_parameter(state, node.value))
        return (target if part or isinstance(target, cst.Subscript) else None), [node.value]
    if isinstance(node, cst.AugAssign):
        return node.target, [node.value]
    if not isinstance(node, cst.Call):
        return None, []
    values = [arg.value for arg in node.args]
    if _initialises(state, node):
        return values[0], values[1:]
    return changed_in_place(node), values


def _is_made(reach: Reach, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a statement gives weights their first values, in a constructor or in what it calls: there is no batch."""
    state = reach.state
    first = _initialises(state, node) or (isinstance(node, cst.Assign) and _is_parameter(state, node.value))
    above = reach.above(unit.names.function(node)) if first else ()
    return any(isinstance(each, cst.FunctionDef) and each.name.value == "__init__" for each in above)


def _initialises(state: State, node: cst.CSTNode) -> bool:
    """``nn.init.constant_(layer.bias, 0)``"""
    record = state.calls.get(node) if isinstance(node, cst.Call) and node.args else None
    return record is not None and outside_name(record).startswith("torch.nn.init.")


def _is_parameter(state: State, node: cst.BaseExpression) -> bool:
    """``nn.Parameter(...)``, which takes the place of a layer's weights."""
    record = state.calls.get(node) if isinstance(node, cst.Call) else None
    return record is not None and outside_name(record) in PARAMETERS


def _weights(state: State, node: cst.BaseExpression) -> frozenset[Origin]:
    """The models of which an expression gives weights or gradients: ``p``, ``p.data``, ``layer.weight.grad``."""
    found: set[Origin] = set()
    for part in _chain(node):
        found.update(o.source for o in origins(state.values.get(part), Role.PARAMETERS) if o.source is not None)
        if isinstance(part, cst.Attribute):
            slot = state.values.get(part)
            made = any(getattr(thing, "qualified", "") in PARAMETERS for thing in (slot.things if slot else ()))
            if made or part.attr.value in _LAYERS:
                found.update(origins(state.values.get(part.value), Role.MODEL))
    return frozenset(whole(state, model) for model in found)


def _stepped(state: State, unit: Unit, node: cst.BaseExpression) -> frozenset[Origin]:
    """The models whose weights an optimizer steps: a variable of a loop in the class of one of the script's own, or of
    a loop over ``group["params"]``."""
    base = list(_chain(node))[-1]
    binding = unit.names.binding(base) if isinstance(base, cst.Name) else None
    definitions = binding.definitions if binding is not None else ()
    around = (next(unit.names.enclosing(definition, cst.For), None) for definition in definitions)
    loops = [each for each in around if isinstance(each, cst.For)]
    owner = next((n for n in unit.names.ancestors(node) if isinstance(n, cst.ClassDef)), None)
    klass = unit.classes.get(owner) if owner is not None else None
    if any(map(_is_group, [*_chain(node), *(loop.iter for loop in loops)])):
        made = list(state.related)
    elif loops and klass is not None and klass.role is Role.OPTIMIZER:
        made = [o for o, own in state.klass.items() if isinstance(o, Origin) and klass in own.lineage()]
    else:
        return frozenset()
    held = (params for optimizer in made for params in origins(state.related.get(optimizer), Role.PARAMETERS))
    return frozenset(whole(state, params.source) for params in held if params.source is not None)


def _is_group(node: cst.BaseExpression) -> bool:
    """The parameters of a group of an optimizer: ``group["params"]``."""
    index = node.slice[0].slice if isinstance(node, cst.Subscript) and len(node.slice) == 1 else None
    return isinstance(index, cst.Index) and key_of(index.value) == "params"


def _chain(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """A value, and that of which it is a part: ``p.data[0]``, ``p.data``, ``p``."""
    yield node
    while True:
        if isinstance(node, cst.Subscript) or (isinstance(node, cst.Attribute) and node.attr.value in _PARTS):
            node = node.value
        elif (base := changed_in_place(node)) is not None:
            node = base
        else:
            return
        yield node
