"""Layers that normalise with the statistics of a batch: those that the program makes, and those of models whose layers
it does not show."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.diagnostics import OwnBatchNorm, UnseenLayers
from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.constant_values import constants_of
from ..dataflow.constants import Text
from ..dataflow.registries import UNNAMED
from ..dataflow.solver import Thing
from ..dataflow.values import CallRecord, External, Klass, State, Unit, origins
from ..effects.unused_code import may_run
from ..syntax.nodes import dotted
from ..syntax.walk import nodes_in
from ..training.modes import is_only_evaluated, owners
from ..training.training import Training

_Layers = Callable[[State, Unit, Reach, Training], list[cst.Call]]


def batch_norms(state: State, unit: Unit, reach: Reach, training: Training) -> list[Reason]:
    """One remark a program, in the first of its modules that has such layers; if none has, in the first that builds a
    model which may have some."""
    if state.once(_freezes, lambda: _freezes(state, reach, training)):
        return []
    for layers, told in ((_norms, _seen), (_closed, _not_seen)):
        found = _found(state, layers, reach, training)
        if found:
            first, calls = found[0]
            return [told(state, calls, len(found) - 1)] if first is unit else []
    return []


def _found(state: State, layers: _Layers, reach: Reach, training: Training) -> list[tuple[Unit, list[cst.Call]]]:
    """The modules that have such layers, with these; asked once for the program."""

    def ask() -> list[tuple[Unit, list[cst.Call]]]:
        return [(unit, calls) for unit in reach.units if (calls := layers(state, unit, reach, training))]

    return state.once((_found, layers), ask)


def _freezes(state: State, reach: Reach, training: Training) -> bool:
    """Whether each layer of BatchNorm is put to rest, in code that runs whatever the options are, after the last thing
    that wakes it: ``if isinstance(layer, nn.BatchNorm2d): layer.eval()``."""
    for unit in reach.units:
        for call in unit.names.calls:
            code = unit.names.function(call)
            if method_name(call) == "eval" and code in reach.reachable and _is_asked_for(state, unit, call):
                sites = reach.sites(code) if isinstance(code, cst.FunctionDef) else [call]
                if any(_runs_in_each_epoch(reach, training, site) for site in sites):
                    return True
    return False


def _is_asked_for(state: State, unit: Unit, call: cst.Call) -> bool:
    """Whether a call is made on what has just been found to be a layer of BatchNorm."""
    around = next(unit.names.enclosing(call, cst.If), None)
    test = around.test if isinstance(around, cst.If) else None
    if not isinstance(test, cst.Call) or method_name(test) != "isinstance" or len(test.args) != 2:
        return False
    same = isinstance(call.func, cst.Attribute) and call.func.value.deep_equals(test.args[0].value)
    kinds = [state.values.get(node) for node in nodes_in(test.args[1].value, cst.Attribute, cst.Name)]
    names = [
        thing.qualified for slot in kinds if slot is not None for thing in slot.things if isinstance(thing, External)
    ]
    return same and any(questions.mixes_rows(name) is True for name in names)


def _runs_in_each_epoch(reach: Reach, training: Training, site: cst.CSTNode) -> bool:
    """Whether a call comes before a training loop in one block, and after what puts the model into training mode."""
    unit = reach.unit_of(site, reach.units[0])
    if site not in unit.names.parents:
        return False
    block = list(getattr(unit.names.block(site), "body", ()))
    own = unit.names.statement(site)
    after = block[block.index(own) + 1 :] if own in block else []
    trains = [i for i, one in enumerate(after) if any(loop is one for loop in training.train_loops)]
    wakes = (n for one in after[: trains[0]] for n in nodes_in(one, cst.Call)) if trains else ()
    return bool(trains) and not any(method_name(call) == "train" for call in wakes)


def _seen(state: State, layers: list[cst.Call], others: int) -> Reason:
    layer = next((one for one in layers if _is_always_batch_norm(state, one)), layers[0])
    written = dotted(layer.func)
    model = "" if _makes_layer(state, layer) else written or "this model"
    maker = written if not _is_always_batch_norm(state, layer) else ""
    return OwnBatchNorm(layer, maker, model, others)


def _not_seen(state: State, models: list[cst.Call], others: int) -> Reason:
    return UnseenLayers(models[0], state.calls[models[0]].unit.names.one_line(models[0].func))


def _norms(state: State, unit: Unit, reach: Reach, training: Training) -> list[cst.Call]:
    """The layers of BatchNorm that a module makes; not those in code that the program never names, and so never
    runs, not those that no option asks for (``if batch_norm:`` of a default that no call changes), and not those of
    models that are evaluated only."""
    made = (call for call in unit.names.calls if _batch_norms_of(state, call) and may_run(unit, reach, call))
    own = (call for call in made if _makes_layer(state, call) or _is_trained(state, training, call))
    own = (call for call in own if not constants_of(state).never(unit, call))
    return [call for call in own if not _is_at_rest(state, reach, training, call)]


def _closed(state: State, unit: Unit, reach: Reach, training: Training) -> list[cst.Call]:
    """The calls of a module that build a model, or a part of one, which is trained and whose layers nobody knows."""
    built = ((call, one) for call in unit.names.calls for one in _built(state, call))
    made = dict.fromkeys(call for call, one in built if _is_closed(state, reach, one, call))
    calls = (call for call in made if _is_trained(state, training, call))
    return [call for call in calls if not _is_at_rest(state, reach, training, call)]


def _is_closed(state: State, reach: Reach, model: Origin, call: cst.Call) -> bool:
    own = state.klass.get(model) is not None or model.qualified in {f"{unit.name}.{UNNAMED}" for unit in reach.units}
    if not model.qualified or own:  # of the program's own classes each layer is seen, whichever is chosen
        return False
    names = _architectures(state, state.calls[call], model.qualified)
    return any(questions.mixes_rows(name) is None for name in names)


def _is_trained(state: State, training: Training, call: cst.Call) -> bool:
    """Whether an optimizer has the weights of the model that a call builds, or of one that this is a part of."""
    return any(not training.models.keys().isdisjoint(owners(state, one)) for one in _built(state, call))


def _architectures(state: State, record: CallRecord, name: str) -> list[str]:
    """The full names of what may build a model: the function itself, or the models that it builds by their names."""
    family = questions.family(name)
    values = constants_of(state).argument(record.unit, record.node, "model_name", 0) if family else None
    if not values or not all(isinstance(value, Text) and value.whole for value in values):
        return [name]
    return [f"{family}.{value.end}" for value in values if isinstance(value, Text)]


def _built(state: State, call: cst.Call) -> list[Origin]:
    return [one for one in origins(state.values.get(call), Role.MODEL) if one.node is call]


def _is_at_rest(state: State, reach: Reach, training: Training, call: cst.Call) -> bool:
    """Whether the layers that a call makes normalise with statistics that they keep, and never with a batch's own."""
    layers = _built(state, call)
    return bool(layers) and all(is_only_evaluated(reach, training, one) for one in layers)


def _batch_norms_of(state: State, call: cst.Call) -> list[Thing]:
    """What a call calls that makes a layer of BatchNorm: through a parameter or `functools.partial`, too."""
    record = state.calls.get(call)
    return [thing for thing in record.callees if _is_batch_norm(state, record, thing)] if record is not None else []


def _is_always_batch_norm(state: State, call: cst.Call) -> bool:
    """Whether a call calls nothing else."""
    return len(_batch_norms_of(state, call)) == len(state.calls[call].callees)


def _is_batch_norm(state: State, record: CallRecord, thing: Thing) -> bool:
    """A layer of BatchNorm as torch has it, a model with some, or a class of the program that is made from one."""
    if isinstance(thing, Klass):
        bases = any(_is_batch_norm(state, record, base) for base in thing.bases)
        return bases or any(questions.mixes_rows(name) is True for name in thing.externals)
    if not isinstance(thing, External):
        return False
    return any(questions.mixes_rows(name) is True for name in _architectures(state, record, thing.qualified))


def _makes_layer(state: State, call: cst.Call) -> bool:
    """Whether a call makes a layer of torch's, or one of the program, and no whole model of a package."""
    made = _batch_norms_of(state, call)
    return any(not isinstance(one, External) or one.qualified.startswith("torch.nn.") for one in made)
