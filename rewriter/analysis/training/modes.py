"""
The modes of models: which are in training mode where they are evaluated, because no ``model.eval()`` comes before, and
which are evaluated only, from where they are built.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import randomness
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.constant_values import constants_of
from ..dataflow.values import CallRecord, State, Unit, origins
from ..syntax.walk import nodes_in
from .training import Training


def noisy_layer(reach: Reach, training: Training, unit: Unit, node: cst.CSTNode) -> tuple[Unit, cst.Call] | None:
    """The call that makes a layer which draws random numbers in training mode, of a model that runs with a node."""
    state = reach.state
    models = {
        training.forwards[n]: None for n in reach.runs(node, unit) if isinstance(n, cst.Call) and n in training.forwards
    }
    for model in models:
        for made in reach.runs(model.node, reach.unit_of(model.node, unit)):
            record = state.calls.get(made) if isinstance(made, cst.Call) else None
            noisy = record is not None and randomness.is_noisy(outside_name(record))
            if record is not None and noisy and not is_never_noisy(state, record.node):
                return record.unit, record.node
    return None


def is_never_noisy(state: State, call: cst.Call) -> bool:
    """Whether a call of dropout, as a layer or a function, leaves out nothing in whatever run: its probability is 0."""
    record = state.calls.get(call)
    name = outside_name(record) if record is not None else ""
    if record is None or not name.startswith("torch.nn."):
        return False
    rate = randomness.dropout_of(name)
    if rate is not None:  # `nn.LSTM(8, 16)` drops nothing where nothing is said
        given = constants_of(state).argument(record.unit, call, "dropout")
        plain = len([arg for arg in call.args if arg.keyword is None]) <= 4 and not any(arg.star for arg in call.args)
        return plain and given is not None and (given <= {0} if given else rate == 0)
    position = 1 if name.startswith("torch.nn.functional.") else 0
    values = constants_of(state).argument(record.unit, call, "p", position)
    return values is not None and values <= {0} and bool(values)


def is_only_evaluated(reach: Reach, training: Training, layer: Origin) -> bool:
    """
    Whether all models that have a layer are in evaluation mode throughout, and trained by no optimizer.

    So it is where the code that builds such a model calls its ``.eval()`` before anything trains, and nothing calls
    ``.train()`` of it or of a part of it.
    """
    state = reach.state
    switched: list[CallRecord] = state.once((is_only_evaluated,), lambda: _switched(reach))
    evals = [r for r in switched if method_name(r.node) == "eval"]
    if not evals:
        return False
    chain = owners(state, layer)
    if any(r not in evals and not chain.keys().isdisjoint(_models(r)) for r in switched):
        return False
    whole = [one for one, owners in chain.items() if not owners]
    return layer not in whole and all(
        one not in training.models and any(one in _models(r) and _at_birth(reach, training, one, r) for r in evals)
        for one in whole
    )


def _switched(reach: Reach) -> list[CallRecord]:
    """The calls that set the mode of a model."""
    records = (r for r in reach.state.calls.values() if method_name(r.node) in ("train", "eval"))
    return [r for r in records if _models(r) and reach.function_of(r.node) in reach.reachable]


def owners(state: State, layer: Origin) -> dict[Origin, list[Origin]]:
    """A layer and all modules that it is a part of, each with those that have it directly."""
    found: dict[Origin, list[Origin]] = {}
    pending = [layer]
    while pending:
        part = pending.pop()
        if part not in found:
            found[part] = list(state.wholes.get(part, ()))
            pending += found[part]
    return found


def _models(record: CallRecord) -> list[Origin]:
    return origins(record.receiver, Role.MODEL)


def _at_birth(reach: Reach, training: Training, model: Origin, switched: CallRecord) -> bool:
    """Whether a model's mode is set by the code that builds it, before that trains anything."""
    made = reach.state.calls.get(model.place) if isinstance(model.place, cst.Call) else None
    code, names = reach.function_of(switched.node), switched.unit.names
    if made is None or reach.function_of(made.node) is not code:
        return False
    before = (c for c in names.calls if names.function(c) is code and names.order(c) < names.order(switched.node))
    trained = {record.node for record in training.backwards}
    return not any(node in trained for call in before for node in reach.runs(call, switched.unit))


def in_training_mode(reach: Reach, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether some way to a node comes by no ``.eval()``, and by no function that may have called it."""
    setters = {u.names.function(call) for u in reach.units for call in u.names.calls if _sets_mode(call)}
    return any(_starts_training(reach, unit, node, setters, set()))


def _starts_training(
    reach: Reach, unit: Unit, node: cst.CSTNode, setters: Collection[Code], seen: set[Code]
) -> Iterator[bool]:
    code, start = unit.names.function(node), unit.names.order(node)
    if code in seen:
        return
    early = (c for c in unit.names.calls if unit.names.function(c) is code and unit.names.order(c) < start)
    if any(_sets_mode(call) or _comes_to(reach, call, setters) for call in early):
        return
    seen.add(code)
    if isinstance(code, cst.Module):
        yield True
    for site in reach.sites(code):
        yield from _starts_training(reach, reach.state.calls[site].unit, site, setters, seen)


def _comes_to(reach: Reach, call: cst.Call, setters: Collection[Code]) -> bool:
    """Whether a call runs one of some functions."""
    return any(code in setters for function in reach.called(call) for code in reach.below(function))


def _sets_mode(call: cst.Call) -> bool:
    name = method_name(call)
    return isinstance(call.func, cst.Attribute) and (
        (name == "eval" and not call.args) or (name == "train" and len(call.args) == 1)
    )


def asks_training(test: cst.CSTNode) -> bool:
    """Whether a condition asks a model for its mode: ``if self.training:``."""
    return any(n.attr.value == "training" for n in nodes_in(test, cst.Attribute))


def is_given_mode(call: cst.Call) -> bool:
    """Whether a call is given the mode of a model, and draws in training mode alone: ``F.dropout(x, 0.5,
    self.training)``."""
    return any(asks_training(arg.value) or (arg.keyword and arg.keyword.value == "training") for arg in call.args)
