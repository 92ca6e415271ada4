"""Random numbers of torch that each process draws for its own rows: in a training step, in a layer, for a row."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from ...facts.module import Count
from ...facts.roles import Role
from ...facts.torch_api import randomness
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import State, Unit, origins
from ..effects.unused_code import may_run
from ..syntax.nodes import dotted, keyword
from ..training.draws import drawn
from ..training.row_code import run_for_rows
from ..training.training import Training, without_gradient
from ..training.weights import draws_weights
from .nature import by_nature


def own_noise(
    state: State, unit: Unit, reach: Reach, training: Training, by_hand: Collection[cst.CSTNode]
) -> Iterator[Count]:
    """
    The calls in a module that draw such numbers, and those that make a layer which does: ``torch.randn_like`` of a
    sampler, the dropout of an LSTM. Not what is named by itself (``by_nature``). Kind ``anew``: a layer that each
    forward pass makes for itself, with weights that it draws.

    ``by_hand``: loops whose batches are made by hand, and cut into shards. What such a training itself draws may be in
    them.
    """
    noise = state.once(own_noise, lambda: _noise(state, reach, training, by_hand))
    for call in unit.names.calls:
        if _is_made_anew(state, unit, reach, call):
            yield Count(call, "anew", method_name(call))
        elif call in noise:
            name = dotted(call.func)
            yield Count(call, "noise", name if name.startswith("torch.") else method_name(call))
        elif call in state.calls and by_nature(call) is None and may_run(unit, reach, call):
            rate = randomness.dropout_of(outside_name(state.calls[call]))
            given = keyword(call, "dropout")
            if rate is not None and (rate > 0 if given is None else not _is_zero(given)):
                yield Count(call, "noise", method_name(call))


def _noise(state: State, reach: Reach, training: Training, by_hand: Collection[cst.CSTNode]) -> set[cst.CSTNode]:
    """The calls that draw noise by torch's own generator where a step is computed, or for the rows of a data set."""
    found = {node for _, nodes in run_for_rows(state, reach, lambda loader: True) for node in nodes}
    for loop in training.train_loops:
        if isinstance(loop, (cst.For, cst.While)):
            unit = reach.unit_of(loop, reach.units[0])
            steps = _of_steps(reach, unit, loop)
            found.update(n for n in steps if loop not in by_hand or _in_model(reach.unit_of(n, unit), reach, n))
    return {node for node in found if isinstance(node, cst.Call) and node in state.calls and _is_noise(state, node)}


def _of_steps(reach: Reach, unit: Unit, loop: cst.For | cst.While) -> Iterator[cst.CSTNode]:
    """The calls in the turns of a loop; not those where no gradient flows: an evaluation, samples that are shown."""
    pending, seen = [(unit, reach.parts(loop.body))], set[Code]()
    while pending:
        where, nodes = pending.pop()
        for node in nodes:
            if not isinstance(node, cst.Call) or without_gradient(where, node):
                continue
            yield node
            for function in reach.called(node):
                if function not in seen:
                    seen.add(function)
                    pending.append((reach.unit(function), iter(reach.own(function))))


def _in_model(unit: Unit, reach: Reach, call: cst.CSTNode) -> bool:
    """Whether a call runs in the forward pass of a model."""
    methods = (k.method("forward") for u in reach.units for k in u.classes.values() if k.role is Role.MODEL)
    return any(unit.names.function(call) in reach.below(m.node) for m in methods if m is not None)


def _is_made_anew(state: State, unit: Unit, reach: Reach, call: cst.Call) -> bool:
    """Whether a forward pass makes a layer for itself alone, with weights that are drawn: ``nn.Linear(4, 4)(x)``."""
    parent = unit.names.parents.get(call)
    alone = isinstance(parent, cst.Call) and parent.func is call
    if not alone or call not in state.calls or not _in_model(unit, reach, call) or not may_run(unit, reach, call):
        return False
    made = origins(state.calls[call].result, Role.MODEL)
    return any(model.node is call and draws_weights(state, model) for model in made)


def _is_noise(state: State, call: cst.Call) -> bool:
    kind = drawn(state.calls[call])
    if kind is None or kind.generator != "torch" or keyword(call, "generator") is not None:
        return False
    return (kind.draws == "noise" or (kind.draws == "numbers" and not _is_of_few(call))) and by_nature(call) is None


def _is_of_few(call: cst.Call) -> bool:
    """Whether so many numbers are drawn as is written out, not one for each row: ``torch.randint(0, 2, (1,))``."""
    sizes = [arg.value for arg in call.args if isinstance(arg.value, (cst.Tuple, cst.List))]
    return bool(sizes) and all(isinstance(each.value, cst.Integer) for size in sizes for each in size.elements)


def _is_zero(node: cst.BaseExpression) -> bool:
    return isinstance(node, (cst.Integer, cst.Float)) and float(node.value) == 0
