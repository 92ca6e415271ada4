"""Where chance decides about a training: random weights for a model that exists, random splits of the data."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import questions, randomness, surroundings
from ...facts.torch_api.kinds.tensors import Random
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import made_names, method_name, outside_name
from ..dataflow.expressions import PARAMETERS
from ..dataflow.values import CallRecord, External, Klass, State, Unit, Unknown, origins
from ..syntax.nodes import dotted, keyword
from ..syntax.walk import descendants, nodes_in
from .training import whole
from .weights import draws_weights

_TRANSFORMS = re.compile(
    r"(Random(?!State|Sampler|Forest|Search|ized[A-Z]\w*CV|Agent|Policy|Walk)\w+|ColorJitter|TrivialAugmentWide|AutoAugment"
    r"|RandAugment|AugMix)$"
)
"""Augmentations; what else is called random (NumPy's ``RandomState``, samplers, forests) changes no image."""
_READ = frozenset({"parameters", "named_parameters"})
"""Methods of a model that give its weights and leave them."""


def drawn(record: CallRecord) -> Random | None:
    """What a call draws: a function, a method of a distribution, a tensor that is filled; None if it draws nothing."""
    name = method_name(record.node)
    names = [outside_name(record), *made_names(record)]
    names += [f"torch.Tensor.{name}"] if name.endswith("_") and isinstance(record.node.func, cst.Attribute) else []
    return next((found for each in names if (found := randomness.draws(each)) is not None), None)


def compiled(state: State, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a node is in a function that Numba compiles: NumPy's functions have generators of its own there, which
    nothing seeds alike."""
    for function in (n for n in unit.names.ancestors(node) if isinstance(n, cst.FunctionDef)):
        for each in function.decorators:
            made = each.decorator.func if isinstance(each.decorator, cst.Call) else each.decorator
            slot = state.values.get(made)
            if any(isinstance(t, External) and t.qualified.startswith("numba.") for t in (slot.things if slot else ())):
                return True
    return False


def random_transform(name: str) -> bool:
    """Whether a name is that of a transform which changes an image at random."""
    return _TRANSFORMS.match(name.rpartition(".")[2]) is not None


def weight_draws(state: State, reach: Reach) -> Iterator[cst.Call]:
    """The calls that give a parameter random values: ``nn.init.normal_(m.weight)``, ``p.data.uniform_()``,
    ``layer.reset_parameters()``."""
    for call, record in state.calls.items():
        if resets_weights(reach, call):
            yield call
            continue
        name = outside_name(record)
        drawn: cst.BaseExpression | None = None
        if name.startswith("torch.nn.init.") and randomness.draws(name) is not None:
            drawn = call.args[0].value if call.args else None
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value.endswith("_"):
            drawn = call.func.value if randomness.draws(f"torch.Tensor.{call.func.attr.value}") is not None else None
        if drawn is not None and _is_weight(state, drawn) and reach.function_of(call) in reach.reachable:
            yield call


def resets_weights(reach: Reach, call: cst.Call) -> bool:
    """Whether a layer that the script did not write draws its weights anew."""
    named = isinstance(call.func, cst.Attribute) and randomness.draws(f"torch.nn.Linear.{call.func.attr.value}")
    return bool(named) and not reach.called(call) and reach.function_of(call) in reach.reachable


def drawn_models(state: State, reach: Reach) -> Iterator[cst.Call]:
    """The calls that make models which loops over batches run, and whose weights stay those that their layers draw:
    the script loads, copies and sets none of them."""
    batches = ((m, call) for call, found in state.forwards.items() for m in found)
    run = {whole(state, m): None for m, call in batches if reach.batch_loops(call, state.calls[call].unit)}
    changed = {whole(state, model) for record in state.calls.values() for model in _may_set(reach, record)}
    for model in run:
        made = state.calls.get(model.node) if isinstance(model.node, cst.Call) else None
        if made is None or made.unit.module_class(made.node) is not None or questions.copies(outside_name(made)):
            continue  # a layer of another model, or a copy of one
        if model not in changed and draws_weights(state, model):
            yield made.node


def _may_set(reach: Reach, record: CallRecord) -> Iterator[Origin]:
    """The models whose weights a call may set: a method that is not known to leave them, an outside function, a copy
    from other parameters."""
    leaving = (questions.keeps_module() | _READ) - {"apply"}
    if record.node not in reach.state.forwards and method_name(record.node) not in leaving:
        yield from origins(record.receiver, Role.MODEL)
    if reach.called(record.node) or surroundings.shows_model(outside_name(record)):
        return
    for slot in (reach.state.values.get(arg.value) for arg in record.node.args):
        if not origins(record.result, Role.MODEL, Role.OPTIMIZER):
            yield from origins(slot, Role.MODEL)
            yield from (o.source for o in origins(slot, Role.PARAMETERS) if o.source is not None)


def _is_weight(state: State, node: cst.BaseExpression) -> bool:
    """``m.weight``, ``p`` of ``for p in model.parameters()``, either of them with ``.data``."""
    if isinstance(node, cst.Attribute):
        last = node.attr.value
        return last in ("weight", "bias") or (last == "data" and _is_weight(state, node.value))
    return bool(origins(state.values.get(node), Role.PARAMETERS))


def plain_draws(state: State, klass: Klass) -> Iterator[tuple[str, cst.CSTNode]]:
    """The attributes in which an object of a class keeps, as plain tensors, what torch has drawn or random weights."""
    names = klass.unit.names
    for assign in nodes_in(klass.node, cst.Assign):
        target, function = assign.targets[0].target, names.function(assign)
        made = isinstance(function, cst.FunctionDef) and function.name.value == "__init__"
        if made and dotted(target).startswith("self.") and not _registered(state, assign.value):
            drawn = next((node for node in descendants(assign.value) if _is_random(state, node)), None)
            if drawn is not None:
                yield dotted(target), drawn


def _registered(state: State, value: cst.BaseExpression) -> bool:
    """Whether what a module keeps is a parameter or a module of its own: these all processes have from rank 0."""
    slot = state.values.get(value)
    held = [t for t in slot.things if isinstance(t, Unknown)] if slot is not None else []
    return bool(origins(slot, Role.MODEL, Role.PARAMETERS)) or any(t.qualified in PARAMETERS for t in held)


def _is_random(state: State, node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Call) and node in state.calls:
        return outside_name(state.calls[node]).startswith("torch.") and drawn(state.calls[node]) is not None
    return isinstance(node, cst.BaseExpression) and _is_weight(state, node)


def split_draws(state: State, reach: Reach) -> Iterator[cst.Call]:
    """The random splits by torch's own generator."""
    for call, record in state.calls.items():
        split = randomness.splits(outside_name(record))
        if split is not None and split.generator == "torch" and reach.function_of(call) in reach.reachable:
            if all(arg.keyword is None or arg.keyword.value != "generator" for arg in call.args):
                yield call


def value_draws(state: State, reach: Reach) -> Iterator[cst.Call]:
    """What torch's own generator draws outside the loops over batches, where numbers are data and no noise."""
    for call, record in state.calls.items():
        found = randomness.draws(outside_name(record))
        if found is not None and found.generator == "torch" and reach.function_of(call) in reach.reachable:
            if keyword(call, "generator") is None and not reach.batch_loops(call, record.unit):
                yield call


def shuffled_loaders(state: State, reach: Reach) -> Iterator[tuple[cst.Call, Origin]]:
    """The loaders that torch's own generator shuffles, each with the call that makes it."""
    for call, record in state.calls.items():
        made = [loader for loader in origins(record.result, Role.LOADER) if loader.node is call]
        shuffled = keyword(call, "shuffle", 2)
        if made and isinstance(shuffled, cst.Name) and shuffled.value == "True" and keyword(call, "generator") is None:
            yield from ((call, loader) for loader in made if reach.function_of(call) in reach.reachable)


def sites_of(reach: Reach, call: cst.Call) -> Iterator[cst.Call]:
    """A call, and all calls by which it is reached. A module that is made is prepared after that: they end there."""
    pending, seen = [call], {call}
    while pending:
        site = pending.pop()
        yield site
        function = reach.function_of(site)
        above = () if _constructs(reach, function) else reach.sites(function)
        pending += [one for one in above if one not in seen]
        seen.update(above)


def _constructs(reach: Reach, code: Code) -> bool:
    """Whether some code makes a new module, which is prepared after that."""
    if not isinstance(code, cst.FunctionDef) or code.name.value != "__init__":
        return False
    unit = reach.unit(code)
    around = next((a for a in unit.names.ancestors(code) if isinstance(a, cst.ClassDef)), None)
    klass = unit.classes.get(around) if around is not None else None
    return klass is not None and klass.role is Role.MODEL
