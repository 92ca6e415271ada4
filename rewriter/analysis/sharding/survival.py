"""
What a script does with weights that does not work once they are sharded.

Between passes a weight is a `DTensor` then: each process keeps a part of it. Arithmetic element by element goes on as
before; what is reported here raises an error, or needs all processes. The new code is the same with and without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from ...facts.reasons.sharding import OfShardedWeights, OnShards
from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import made_names, method_name, outside_name
from ..dataflow.values import CallRecord, Klass, State, Unit, origins
from ..devices.use_before_prepare import Stands
from ..effects.checkpoints import exports
from ..syntax.definitions import nodes_behind
from ..syntax.walk import descendants
from ..training.gradient_path import backward_operand
from ..training.training import Training, whole
from .reads import ShardedWeights, text


def survival(
    state: State, unit: Unit, reach: Reach, training: Training, stands: Mapping[Origin, Stands]
) -> Iterator[OfShardedWeights]:
    """The findings of one module, one for each place; several of one kind and one text are one."""
    weights = ShardedWeights(state, reach, stands)
    found: list[OfShardedWeights] = []
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is not None:
            found += _of_call(weights, unit, record, training)
    for node in unit.names.every(cst.Subscript):
        found += _by_index(weights, unit, node)
    for assign in unit.names.every(cst.Assign):
        found += _shared(weights, unit, assign)
    for record in training.backwards:
        found += _penalty(weights, unit, record) if record.unit is unit else ()
    yield from {f._replace(node=None): f for f in reversed(found)}.values()


def _of_call(weights: ShardedWeights, unit: Unit, record: CallRecord, training: Training) -> Iterator[OfShardedWeights]:
    call, name = record.node, outside_name(record)
    yield from _as_python(weights, unit, call)
    yield from _handed(weights, unit, record)
    yield from _overwritten(weights, unit, call)
    yield from _alone(weights, unit, call, training)
    yield from _optimizer(unit, record)
    if questions.joins_weights(name) and any(_lists_sharded(weights, unit, arg.value) for arg in call.args):
        yield OfShardedWeights(call, OnShards.JOINED_WEIGHTS, text(unit, call.func))
    if questions.copies(name) and call.args and weights.models(unit, call.args[0].value):
        yield OfShardedWeights(call, OnShards.COPIED_MODEL, text(unit, call))
    if name == "torch.save" and call.args and weights.models(unit, call.args[0].value):
        yield OfShardedWeights(call, OnShards.SAVED_OBJECT, text(unit, call.args[0].value))
    if exports(record) and call.args and weights.models(unit, call.args[0].value):
        yield OfShardedWeights(call, OnShards.FOLLOWED_MODEL, text(unit, call.func))
    if name == "builtins.zip":
        yield from _mixed(weights, unit, call)


def _as_python(weights: ShardedWeights, unit: Unit, call: cst.Call) -> Iterator[OfShardedWeights]:
    """``model.head.weight.detach().cpu().numpy()``, ``p.tolist()``."""
    if method_name(call) not in questions.as_python() or not isinstance(call.func, cst.Attribute):
        return
    inner = call.func.value
    while isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute) and weights.of(unit, inner) is None:
        inner = inner.func.value
    if weights.of(unit, inner) is not None:
        yield OfShardedWeights(call, OnShards.PYTHON_NUMBERS, text(unit, call))


def _handed(weights: ShardedWeights, unit: Unit, record: CallRecord) -> Iterator[OfShardedWeights]:
    """``writer.add_histogram(name, p)``, ``wandb.Histogram(p.cpu())``: what is not torch's computes with numbers."""
    call, name = record.node, outside_name(record)
    tracked = any(questions.tracker(method.rpartition(".")[0]) is not None for method in made_names(record))
    if not tracked and name.partition(".")[0] in ("", "torch", "builtins"):
        return
    given = [arg.value for arg in call.args if weights.of(unit, arg.value) is not None]
    if given:  # the last of them: a name comes before its weight
        yield OfShardedWeights(call, OnShards.HANDED_WEIGHT, text(unit, call.func), text(unit, given[-1]))


def _overwritten(weights: ShardedWeights, unit: Unit, call: cst.Call) -> Iterator[OfShardedWeights]:
    """``p.data.copy_(other)``, where the other tensor is whole on each process."""
    if method_name(call) != "copy_" or not call.args or not isinstance(call.func, cst.Attribute):
        return
    target, value = call.func.value, call.args[0].value
    if weights.of(unit, target) is not None and next(weights.within(unit, descendants(value)), None) is None:
        yield OfShardedWeights(call, OnShards.WHOLE_TENSOR, text(unit, call.func))


def _alone(weights: ShardedWeights, unit: Unit, call: cst.Call, training: Training) -> Iterator[OfShardedWeights]:
    """``model.encoder(x)`` outside of the forward pass of the model."""
    if call not in training.forwards:
        return
    for part in origins(weights.state.values.get(call.func), Role.MODEL):
        model = whole(weights.state, part)
        if part is not model and part not in weights.stands and weights.sharded(unit, call, part):
            yield OfShardedWeights(call, OnShards.CALLED_PART, text(unit, call.func))
            return


def _optimizer(unit: Unit, record: CallRecord) -> Iterator[OfShardedWeights]:
    made = [o for o in origins(record.result, Role.OPTIMIZER) if o.node is record.node]
    if not made:
        return
    for one in made:
        if questions.needs_whole_weights(one.qualified):
            yield OfShardedWeights(record.node, OnShards.WHOLE_WEIGHTS, one.qualified)
    if any(isinstance(thing, Klass) for thing in record.callees):
        yield OfShardedWeights(record.node, OnShards.OWN_OPTIMIZER, text(unit, record.node.func))


def _mixed(weights: ShardedWeights, unit: Unit, call: cst.Call) -> Iterator[OfShardedWeights]:
    """``zip(ema.parameters(), model.parameters())``, where one of the two is not prepared."""
    models = [model for arg in call.args for model in weights.listed(unit, arg.value)[:1]]
    wholes = [whole(weights.state, model) for model in models]
    sharded = [m for m in wholes if m in weights.stands and weights.sharded(unit, call, m)]
    kept = [arg.value for arg, m in zip(call.args, wholes, strict=False) if m not in weights.stands]
    if len(models) == len(call.args) > 1 and sharded and kept:
        yield OfShardedWeights(call, OnShards.MIXED_WEIGHTS, text(unit, kept[0]))


def _by_index(weights: ShardedWeights, unit: Unit, node: cst.Subscript) -> Iterator[OfShardedWeights]:
    """``model.embedding.weight[0]``, read or written."""
    if weights.of(unit, node.value) is None:
        return
    above = unit.names.parents.get(node)
    if isinstance(above, (cst.AssignTarget, cst.AugAssign)) and getattr(above, "target", None) is node:
        yield OfShardedWeights(node, OnShards.WRITTEN_PART, text(unit, node))
    else:
        yield OfShardedWeights(node, OnShards.READ_PART, text(unit, node))


def _shared(weights: ShardedWeights, unit: Unit, node: cst.Assign) -> Iterator[OfShardedWeights]:
    """``model.head.weight = model.embedding.weight`` after prepare."""
    for target in (one.target for one in node.targets):
        if isinstance(target, cst.Attribute) and isinstance(node.value, cst.Attribute):
            held = origins(weights.state.values.get(target.value), Role.MODEL)
            into = any(weights.sharded(unit, node, model) for model in held)
            if into and weights.of(unit, node.value) is not None:
                yield OfShardedWeights(node, OnShards.SHARED_PARAMETER, text(unit, target), text(unit, node.value))


def _penalty(weights: ShardedWeights, unit: Unit, record: CallRecord) -> Iterator[OfShardedWeights]:
    """``loss + 0.01 * sum(p.pow(2).sum() for p in model.parameters())``."""
    operand = backward_operand(record)
    nodes = list(nodes_behind(unit.names, operand)) if operand is not None else []
    for node, _ in weights.within(unit, iter(nodes)):
        yield OfShardedWeights(node, OnShards.WEIGHT_PENALTY)
        return


def _lists_sharded(weights: ShardedWeights, unit: Unit, node: cst.CSTNode) -> bool:
    return any(weights.sharded(unit, node, model) for model in weights.listed(unit, node))
