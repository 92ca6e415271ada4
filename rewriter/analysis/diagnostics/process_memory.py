"""What a process remembers of its own rows from step to step: a bank of features, a queue of keys, a replay buffer."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.container_methods import adds_one_in_order
from ...facts.reasons import Reason
from ...facts.reasons.diagnostics import KeptForLoss, KeptOutputs, KeptTensors, Observers
from ...facts.roles import TENSORS, Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.containers import collects
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value, unshadowed
from ..syntax.nodes import dotted
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from ..training.gradient_path import backward_operand
from ..training.training import Training
from .tensor_memory import tensor_memories

_DRAWING = frozenset("random.choice random.choices random.sample".split())


def memories(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[Reason]:
    """One finding a module, where its training first remembers; and one for observers, which remember ranges."""
    yield from _observers(state, unit, reach)
    found = next(_stores(state, unit, training), None)
    if found is not None:
        yield KeptOutputs(found)
        return
    for node, name in _buffers(state, unit, reach, training):
        yield KeptTensors(node, name)
        return
    kept = list(tensor_memories(state, unit, reach, training))
    if kept:
        yield KeptForLoss(kept[0][0], tuple(name for _, name in kept))


def _observers(state: State, unit: Unit, reach: Reach) -> Iterator[Reason]:
    """What puts observers into a model: they collect the ranges of what passes by on one process."""
    for call in unit.names.calls:
        if call in state.calls and questions.observes(outside_name(state.calls[call])):
            if unit.names.function(call) in reach.reachable:
                yield Observers(call, dotted(call.func))
                return


def _stores(state: State, unit: Unit, training: Training) -> Iterator[cst.CSTNode]:
    """Assignments in a training loop to a tensor that an earlier turn, or the code before the loop, has left."""
    for loop in training.train_loops:
        if loop in unit.names.parents and isinstance(loop, (cst.For, cst.While)):
            inside = {*descendants(loop.body), *(descendants(loop.target) if isinstance(loop, cst.For) else ())}
            for node in nodes_in(loop.body, cst.Assign, cst.AugAssign):
                target = node.target if isinstance(node, cst.AugAssign) else node.targets[0].target
                if isinstance(node, cst.AugAssign) and not _is_used(state, unit, node, inside):
                    continue  # a table of totals
                if (isinstance(node, cst.AugAssign) or len(node.targets) == 1) and _remembers(
                    state, unit, target, node.value, inside
                ):
                    yield node


def _buffers(state: State, unit: Unit, reach: Reach, training: Training) -> Iterator[tuple[cst.CSTNode, str]]:
    """Lists of an object that a training step fills with rows, and from which it takes single ones again."""
    losses = {o for record in training.backwards for o in origins(state.values.get(backward_operand(record)))}
    filled = [
        (node, stored[0])
        for node in unit.names.every(cst.Call, cst.Assign)
        if (stored := _stored(state, node)) is not None
        # what a backward pass starts from is one figure: a meter keeps it
        and not losses.issuperset(origins(state.values.get(stored[1]), *TENSORS))
    ]
    steps = {n for loop in training.train_loops for n in reach.runs_in(loop)} if filled else set()
    for node, field in filled:
        if node not in steps:
            continue
        owner = next((a for a in unit.names.ancestors(node) if isinstance(a, cst.ClassDef)), None)
        for part in descendants(owner) if owner is not None else ():
            if part in steps and _takes_one(state, unit, part, dotted(field)):
                yield node, dotted(field)
                break


def _stored(state: State, node: cst.CSTNode) -> tuple[cst.Attribute, cst.BaseExpression] | None:
    """The field that `self.data.append(x)` or `self.data[i] = x` fills, and with what."""
    if isinstance(node, cst.Call) and node.args and collects(state, node, adds_one_in_order):
        field, value = getattr(node.func, "value", None), node.args[-1].value
    elif isinstance(node, cst.Assign) and isinstance(node.targets[0].target, cst.Subscript):
        field, value = node.targets[0].target.value, node.value
    else:
        return None
    return (field, value) if isinstance(field, cst.Attribute) and dotted(field) else None


def _takes_one(state: State, unit: Unit, node: cst.CSTNode, field: str) -> bool:
    """Whether a node reads single elements of a field: by an index, or drawn at random; not only to add to them, as a
    sum does."""
    if isinstance(node, cst.Subscript) and dotted(node.value) == field:
        return not isinstance(unit.names.parents.get(node), cst.AssignTarget) and not _adds_to(unit, node)
    if isinstance(node, cst.Call) and node.args and node in state.calls:
        return outside_name(state.calls[node]) in _DRAWING and dotted(node.args[0].value) == field
    return False


def _adds_to(unit: Unit, element: cst.Subscript) -> bool:
    """``sums[name] += x``, ``sums[name] = sums[name] + x``."""
    around = next(unit.names.enclosing(element, cst.Assign, cst.AugAssign), None)
    if isinstance(around, cst.AugAssign):
        return isinstance(around.operator, cst.AddAssign) and around.target is element
    sum_ = around.value if isinstance(around, cst.Assign) else None
    adds = isinstance(sum_, cst.BinaryOperation) and isinstance(sum_.operator, cst.Add) and sum_.left is element
    return adds and isinstance(around, cst.Assign) and around.targets[0].target.deep_equals(element)


def _is_used(state: State, unit: Unit, node: cst.AugAssign, inside: set[cst.CSTNode]) -> bool:
    """Whether a table, an entry of which is added to, is also read there, or for a loss in the turns of the loop."""
    base = node.target.value if isinstance(node.target, cst.Subscript) else None
    binding = unit.names.binding(base) if isinstance(base, cst.Name) else None
    for read in binding.reads if binding is not None else ():
        around = next(unit.names.enclosing(read, cst.Assign, cst.AugAssign), None) if read in inside else None
        if around is node and read is not base:
            return True
        if isinstance(around, cst.Assign) and origins(state.values.get(around.value), Role.LOSS):
            return True
    return False


def _remembers(
    state: State, unit: Unit, target: cst.BaseExpression, value: cst.BaseExpression, inside: set[cst.CSTNode]
) -> bool:
    held = state.values.get(value)
    own = origins(held, Role.LOSS, Role.LOCAL) and _is_by_row(state, target)
    if not own and not origins(held, Role.OUTPUT, Role.BATCH):
        return False
    base = target.value if isinstance(target, cst.Subscript) else target
    binding = unit.names.binding(base) if isinstance(base, cst.Name) else None
    again = [n for n in nodes_in(value, cst.Name) if unit.names.binding(n) is binding]
    read = [base] if isinstance(target, cst.Subscript) else again
    if binding is None or not any(_is_from_before(unit, binding, one, inside) for one in read):
        return False
    if isinstance(target, cst.Subscript):
        made = [v for v in bindings_value(unit.names, binding) if v not in inside]
        return any(isinstance(v, cst.Call) and _makes_tensor(state, v) for v in made)
    joins = any(method_name(n) in ("cat", "concat", "vstack") for n in nodes_in(value, cst.Call))
    return joins and bool(origins(state.values.get(value), *TENSORS))


def _is_by_row(state: State, target: cst.BaseExpression) -> bool:
    """``of_sample[index]``, with numbers of rows that the batch brings: a loss is kept for each row."""
    parts = target.slice if isinstance(target, cst.Subscript) else ()
    indices = (part.slice.value for part in parts if isinstance(part.slice, cst.Index))
    return any(origins(state.values.get(index), Role.BATCH) for index in indices)


def _is_from_before(unit: Unit, binding: Binding, read: cst.CSTNode, inside: set[cst.CSTNode]) -> bool:
    """Whether a read in a turn of a loop may see what was there before the turn: each turn may bind the variable
    anew."""
    return any(definition not in inside for definition in unshadowed(unit.names, binding, read))


def _makes_tensor(state: State, call: cst.Call) -> bool:
    while isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Call):
        call = call.func.value
    return call in state.calls and outside_name(state.calls[call]).startswith("torch.")
