"""Tensors that outlive a step, are changed by outputs of it, and enter the loss of later ones: a queue, a bank, a mean
that moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.roles import Role
from ...facts.torch_api import process_calls
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import State, Unit, origins
from ..layouts.loop_layouts import unmoved
from ..syntax.definitions import seen_values
from ..syntax.nodes import dotted, is_none
from ..syntax.walk import descendants, nodes_in
from ..training.gradient_path import GradientPath
from ..training.modes import asks_training
from ..training.training import Training

_WHOLE = frozenset("copy_ set_ resize_ resize_as_ fill_ zero_ detach_ requires_grad_".split())
"""Methods that leave nothing of what was there, or of the values."""


class TensorChange(NamedTuple):
    """One statement or call that changes a tensor by values."""

    node: cst.CSTNode
    field: cst.BaseExpression
    values: list[cst.BaseExpression]


def tensor_memories(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[tuple[cst.CSTNode, str]]:
    """The first change of each such tensor of a module, with the text that names it."""
    changes = [change for change in _changes(unit) if _of_outputs(state, unit, change)]
    if not changes:
        return
    steps = {node for loop in training.train_loops for node in reach.runs_in(loop)}
    path = state.once(_path, lambda: _path(reach, training))
    told: set[str] = set()
    for change in changes:
        name = dotted(change.field)
        if name in told or change.node not in steps or _is_joined(state, reach, unit, change):
            continue
        if _is_reset(reach, unit, change, steps):
            continue
        if _outlives(unit, change, training) and _enters(unit, change, path):
            told.add(name)
            yield change.node, name


def _is_reset(reach: Reach, unit: Unit, change: TensorChange, steps: set[cst.CSTNode]) -> bool:
    """Whether each step takes away first what the steps before it left in an attribute: ``self.seen = None``."""
    owner = next((a for a in unit.names.ancestors(change.node) if isinstance(a, cst.ClassDef)), None)
    for node in nodes_in(owner, cst.Assign) if owner is not None else ():
        same = any(target.target.deep_equals(change.field) for target in node.targets)
        if same and is_none(node.value) and node in steps and _is_regular(reach, unit, node, steps):
            return True
    return False


def _is_regular(
    reach: Reach, unit: Unit, node: cst.CSTNode, steps: set[cst.CSTNode], seen: frozenset[cst.CSTNode] = frozenset()
) -> bool:
    """Whether a node runs in each step, or in none: by no condition but a setting, ``if self.attends:``."""
    for around, below in unit.names.outwards(node):
        if isinstance(around, (cst.For, cst.While)) and reach.state.loaders.get(around):
            return True
        if isinstance(around, (cst.ExceptHandler, cst.While)) or (
            isinstance(around, cst.If) and below is around.orelse
        ):
            return False
        if isinstance(around, cst.If) and not isinstance(around.test, cst.Attribute):
            return False
    code = unit.names.function(node)
    sites = [site for site in reach.sites(code) if site in steps] if code not in seen else []
    calls = reach.state.calls
    return bool(sites) and all(_is_regular(reach, calls[s].unit, s, steps, seen | {code}) for s in sites)


def _path(reach: Reach, training: Training) -> frozenset[cst.CSTNode]:
    """What a loss is computed from, also without a gradient."""
    path = GradientPath(reach, training)
    return frozenset(path.nodes).union(*(descendants(end) for end in path.ends))


def _changes(unit: Unit) -> Iterator[TensorChange]:
    """The changes that leave a part of what was there before."""
    for node in unit.names.every(cst.Call, cst.Assign, cst.AugAssign):
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            method, values = node.func.attr.value, [arg.value for arg in node.args]
            base = _base(node.func.value)
            partly = isinstance(node.func.value, cst.Subscript) or any(_names(v, base) for v in values)
            if method.endswith("_") and not method.endswith("__") and (method not in _WHOLE or partly):
                yield TensorChange(node, base, values)
        elif isinstance(node, cst.Assign) and len(node.targets) == 1:
            target = node.targets[0].target
            base = _base(target)
            moves = isinstance(node.value, cst.BinaryOperation) and _names(node.value, base)
            if isinstance(target, cst.Subscript) or moves:
                yield TensorChange(node, base, [node.value])
        elif isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Subscript):
            yield TensorChange(node, _base(node.target), [node.value])


def _base(node: cst.BaseExpression) -> cst.BaseExpression:
    """``self.queue`` of ``self.queue.data[:, 0]``, and of ``self.queue.mul_(0.9)``, which gives it again."""
    while True:
        if isinstance(node, cst.Subscript) or (isinstance(node, cst.Attribute) and node.attr.value == "data"):
            node = node.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and method_name(node).endswith("_"):
            node = node.func.value
        else:
            return node


def _names(node: cst.CSTNode, base: cst.BaseExpression) -> bool:
    return any(part.deep_equals(base) for part in descendants(node))


def _of_outputs(state: State, unit: Unit, change: TensorChange) -> bool:
    """Whether what a tensor is changed by is computed from the rows of a step, and no gradient flows through it."""
    given = [part for v in change.values for part in (v, unmoved(v))]
    if not dotted(change.field) or not any(origins(state.values.get(part), Role.OUTPUT) for part in given):
        return False
    cut = (n for v in change.values for n in nodes_in(v, cst.Attribute))
    if isinstance(change.field, cst.Attribute) or any(n.attr.value in ("detach", "data") for n in cut):
        return True
    return any(
        "no_grad" in unit.names.module.code_for_node(item)
        for around in unit.names.enclosing(change.node, cst.With)
        for item in getattr(around, "items", ())
    )


def _outlives(unit: Unit, change: TensorChange, training: Training) -> bool:
    """Whether a tensor is there before the step: an attribute, or a variable of the code around the loop."""
    if isinstance(change.field, cst.Attribute):
        return dotted(change.field).startswith("self.")
    binding = unit.names.binding(change.field) if isinstance(change.field, cst.Name) else None
    loops = [n for n in unit.names.enclosing(change.node, cst.For, cst.While) if n in training.train_loops]
    if binding is None or not loops:
        return False
    inside = set(descendants(loops[-1]))
    made = [d for d in binding.definitions if d not in {*descendants(change.node)}]
    return bool(made) and not any(d in inside or isinstance(d, cst.Param) for d in made)


def _enters(unit: Unit, change: TensorChange, path: frozenset[cst.CSTNode]) -> bool:
    """Whether a loss of a later step reads a tensor, by itself or in what it changes another one by."""
    own = set(descendants(change.node))
    owner = next((a for a in unit.names.ancestors(change.node) if isinstance(a, cst.ClassDef)), unit.names.module)
    others = [c for c in _changes_of(owner) if not c.field.deep_equals(change.field)]
    pending, seen = [change.field], list[cst.BaseExpression]()
    while pending:
        field = pending.pop()
        seen.append(field)
        reads = [n for n in descendants(owner) if n not in own and n.deep_equals(field)]
        if any(read in path and not _of_evaluation(unit, read) for read in reads):
            return True
        for other in others:
            if any(_depends(unit, v, field) for v in other.values):
                pending += [] if any(other.field.deep_equals(one) for one in seen) else [other.field]
    return False


def _changes_of(owner: cst.CSTNode) -> list[TensorChange]:
    """The changes of attributes in a class, also those that replace all of them."""
    found: list[TensorChange] = []
    for node in descendants(owner) if isinstance(owner, cst.ClassDef) else ():
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and method_name(node).endswith("_"):
            found.append(TensorChange(node, _base(node.func.value), [arg.value for arg in node.args]))
        elif isinstance(node, cst.Assign) and len(node.targets) == 1:
            found.append(TensorChange(node, _base(node.targets[0].target), [node.value]))
    return [change for change in found if isinstance(change.field, cst.Attribute)]


def _depends(unit: Unit, value: cst.BaseExpression, field: cst.BaseExpression) -> bool:
    """Whether a value is computed from a tensor, also by variables."""
    pending, seen = [value], {value}
    while pending:
        node = pending.pop()
        if node.deep_equals(field) or _names(node, field):
            return True
        named = [n for n in nodes_in(node, cst.Name) if n in unit.names.within]
        behind = [v for name in named for v in seen_values(unit.names, name) if v not in seen]
        seen.update(behind)
        pending += behind
    return False


def _of_evaluation(unit: Unit, read: cst.CSTNode) -> bool:
    """Whether a read is in code that asks whether the model trains: running statistics, which evaluation reads."""
    around = unit.names.enclosing(read, cst.If, cst.IfExp)
    tests = (node.test for node in around if isinstance(node, (cst.If, cst.IfExp)))
    return any(map(asks_training, tests))


def _is_joined(state: State, reach: Reach, unit: Unit, change: TensorChange) -> bool:
    """Whether the code around a change makes something that all processes have."""
    calls = (n for n in reach.own(unit.names.function(change.node)) if isinstance(n, cst.Call) and n in state.calls)
    for record in map(state.calls.__getitem__, calls):
        of_accelerator = (
            origins(record.receiver, Role.ACCELERATOR) and method_name(record.node) in process_calls.joining()
        )
        if of_accelerator or process_calls.collective(outside_name(record)) is not None:
            return True
    return False
