"""
What a script does with weights that does not work once they are sharded.

Between passes a weight is a `DTensor` then: each process keeps a part of it. Arithmetic element by element goes on as
before; what is reported here raises an error, or needs all processes. The new code is the same with and without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from ...findings import Finding, Severity
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

_ID = "sharded-weights"
_STATE = "take it from accelerator.get_state_dict(model), on all processes: the main process then has the whole weight"


def survival(
    state: State, unit: Unit, reach: Reach, training: Training, stands: Mapping[Origin, Stands]
) -> Iterator[Finding]:
    """The findings of one module, one for each place; several of one kind and one text are one."""
    weights = ShardedWeights(state, reach, stands)
    found: list[Finding] = []
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
    yield from {(f.message, f.severity): f for f in reversed(found)}.values()


def _of_call(weights: ShardedWeights, unit: Unit, record: CallRecord, training: Training) -> Iterator[Finding]:
    call, name = record.node, outside_name(record)
    yield from _as_python(weights, unit, call)
    yield from _handed(weights, unit, record)
    yield from _overwritten(weights, unit, call)
    yield from _alone(weights, unit, call, training)
    yield from _optimizer(unit, record)
    if questions.joins_weights(name) and any(_lists_sharded(weights, unit, arg.value) for arg in call.args):
        yield _found(
            call,
            f"`{text(unit, call.func)}` joins weights in one vector: with sharded weights this raises an error, "
            "unless the first dimension of each is a multiple of the number of processes",
            "work on the parameters one by one, or do this before accelerator.prepare",
        )
    if questions.copies(name) and call.args and weights.models(unit, call.args[0].value):
        yield _found(
            call,
            f"`{text(unit, call)}` copies a model after it is prepared, which raises an error with sharded weights",
            "copy the model before accelerator.prepare, and prepare the copy, too; for a copy of its weights alone use "
            "accelerator.get_state_dict(model)",
        )
    if name == "torch.save" and call.args and weights.models(unit, call.args[0].value):
        yield _found(
            call,
            f"`{text(unit, call.args[0].value)}` is saved as an object, which raises an error with sharded weights: "
            "each process has a part of them",
            "save its state dict: accelerator.save(accelerator.get_state_dict(model), path)",
        )
    if exports(record) and call.args and weights.models(unit, call.args[0].value):
        yield _found(
            call,
            f"`{text(unit, call.func)}` follows a model, or stores it as an object, which raises an error with sharded "
            "weights",
            "do this before accelerator.prepare, or with a plain model that loads accelerator.get_state_dict(model)",
        )
    if name == "builtins.zip":
        yield from _mixed(weights, unit, call)


def _as_python(weights: ShardedWeights, unit: Unit, call: cst.Call) -> Iterator[Finding]:
    """``model.head.weight.detach().cpu().numpy()``, ``p.tolist()``."""
    if method_name(call) not in questions.as_python() or not isinstance(call.func, cst.Attribute):
        return
    inner = call.func.value
    while isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute) and weights.of(unit, inner) is None:
        inner = inner.func.value
    if weights.of(unit, inner) is not None:
        yield _found(call, f"`{text(unit, call)}` raises an error with sharded weights", _STATE)


def _handed(weights: ShardedWeights, unit: Unit, record: CallRecord) -> Iterator[Finding]:
    """``writer.add_histogram(name, p)``, ``wandb.Histogram(p.cpu())``: what is not torch's computes with numbers."""
    call, name = record.node, outside_name(record)
    tracked = any(questions.tracker(method.rpartition(".")[0]) is not None for method in made_names(record))
    if not tracked and name.partition(".")[0] in ("", "torch", "builtins"):
        return
    given = [arg.value for arg in call.args if weights.of(unit, arg.value) is not None]
    if given:  # the last of them: a name comes before its weight
        yield _found(
            call,
            f"`{text(unit, call.func)}` is handed the weight `{text(unit, given[-1])}`, and reads its numbers: with "
            "sharded weights this raises an error",
            _STATE,
        )


def _overwritten(weights: ShardedWeights, unit: Unit, call: cst.Call) -> Iterator[Finding]:
    """``p.data.copy_(other)``, where the other tensor is whole on each process."""
    if method_name(call) != "copy_" or not call.args or not isinstance(call.func, cst.Attribute):
        return
    target, value = call.func.value, call.args[0].value
    if weights.of(unit, target) is not None and next(weights.within(unit, descendants(value)), None) is None:
        yield _found(
            call,
            f"`{text(unit, call.func)}` copies a tensor that each process has whole into a sharded weight, "
            "which raises an error",
            "set weights with model.load_state_dict(...), or before accelerator.prepare",
        )


def _alone(weights: ShardedWeights, unit: Unit, call: cst.Call, training: Training) -> Iterator[Finding]:
    """``model.encoder(x)`` outside of the forward pass of the model."""
    if call not in training.forwards:
        return
    for part in origins(weights.state.values.get(call.func), Role.MODEL):
        model = whole(weights.state, part)
        if part is not model and part not in weights.stands and weights.sharded(unit, call, part):
            yield _found(
                call,
                f"`{text(unit, call.func)}` is a part of a model, called by itself: sharded weights are gathered by "
                "calls of the model, and of the modules that FSDP has as units of their own. Any other part raises an "
                "error",
                "call it from a method of the model, or name its class: --fsdp-transformer-layer-cls-to-wrap",
            )
            return


def _optimizer(unit: Unit, record: CallRecord) -> Iterator[Finding]:
    made = [o for o in origins(record.result, Role.OPTIMIZER) if o.node is record.node]
    if not made:
        return
    for one in made:
        if questions.needs_whole_weights(one.qualified):
            yield _found(
                record.node,
                f"{one.qualified} needs each weight as a whole, and does not work with sharded weights",
                "use another optimizer, such as torch.optim.AdamW",
            )
    if any(isinstance(thing, Klass) for thing in record.callees):
        yield _found(
            record.node,
            f"`{text(unit, record.node.func)}` is an optimizer of this program: with sharded weights its step sees "
            "tensors of which each process has a part. Arithmetic element by element is right; reshaping, indexing and "
            "states that are made from a shape alone can raise errors",
            "make states with torch.zeros_like(p), and compare the losses of a few steps with those of one process",
        )


def _mixed(weights: ShardedWeights, unit: Unit, call: cst.Call) -> Iterator[Finding]:
    """``zip(ema.parameters(), model.parameters())``, where one of the two is not prepared."""
    models = [model for arg in call.args for model in weights.listed(unit, arg.value)[:1]]
    wholes = [whole(weights.state, model) for model in models]
    sharded = [m for m in wholes if m in weights.stands and weights.sharded(unit, call, m)]
    kept = [arg.value for arg, m in zip(call.args, wholes, strict=False) if m not in weights.stands]
    if len(models) == len(call.args) > 1 and sharded and kept:
        yield _found(
            call,
            f"`{text(unit, kept[0])}` are whole on each process, and the weights beside them are sharded: arithmetic "
            "between the two raises an error",
            "prepare that model, too, right after the other: model = accelerator.prepare(model) shards both alike",
        )


def _by_index(weights: ShardedWeights, unit: Unit, node: cst.Subscript) -> Iterator[Finding]:
    """``model.embedding.weight[0]``, read or written."""
    if weights.of(unit, node.value) is None:
        return
    above = unit.names.parents.get(node)
    if isinstance(above, (cst.AssignTarget, cst.AugAssign)) and getattr(above, "target", None) is node:
        yield _found(
            node,
            f"`{text(unit, node)}` writes to a part of a weight, which raises an error with sharded weights",
            "do this in the forward pass of the model, or before accelerator.prepare",
        )
    else:
        yield _found(
            node,
            f"`{text(unit, node)}` reads a part of a weight: with sharded weights all processes must come here, and "
            "the result cannot be combined with plain tensors",
            _STATE,
        )


def _shared(weights: ShardedWeights, unit: Unit, node: cst.Assign) -> Iterator[Finding]:
    """``model.head.weight = model.embedding.weight`` after prepare."""
    for target in (one.target for one in node.targets):
        if isinstance(target, cst.Attribute) and isinstance(node.value, cst.Attribute):
            held = origins(weights.state.values.get(target.value), Role.MODEL)
            into = any(weights.sharded(unit, node, model) for model in held)
            if into and weights.of(unit, node.value) is not None:
                yield _found(
                    node,
                    f"`{text(unit, target)}` becomes the same parameter as `{text(unit, node.value)}` after the model "
                    "is prepared, which raises an error with sharded weights",
                    "share the parameter before accelerator.prepare",
                )


def _penalty(weights: ShardedWeights, unit: Unit, record: CallRecord) -> Iterator[Finding]:
    """``loss + 0.01 * sum(p.pow(2).sum() for p in model.parameters())``."""
    operand = backward_operand(record)
    nodes = list(nodes_behind(unit.names, operand)) if operand is not None else []
    for node, _ in weights.within(unit, iter(nodes)):
        yield _found(
            node,
            "this loss has a term of the weights themselves. With sharded weights it cannot be added to the loss of "
            "the batch: the backward pass raises an error",
            "for a squared norm use the optimizer's weight_decay; any other term can be a loss of its own, with a "
            "backward pass of its own",
        )
        return


def _lists_sharded(weights: ShardedWeights, unit: Unit, node: cst.CSTNode) -> bool:
    return any(weights.sharded(unit, node, model) for model in weights.listed(unit, node))


def _found(node: cst.CSTNode, message: str, remedy: str) -> Finding:
    return Finding(_ID, node, message, remedy, Severity.REVIEW)
