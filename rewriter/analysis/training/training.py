"""Training, found: backward passes, optimizer steps, which loops train and which evaluate, what is trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from ...facts.roles import SHARES, TENSORS, Origin, Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.containers import members
from ..dataflow.solver import Slot, Thing
from ..dataflow.values import (
    CallRecord,
    External,
    Instance,
    Klass,
    Mapping,
    Sequence,
    State,
    Unit,
    origins,
)
from ..syntax.nodes import FunctionNode, positional
from ..syntax.walk import descendants, nodes_in

_STEPS = ("step",)
_WEIGHTS = ("parameters", "named_parameters")


@dataclass(eq=False)
class Training:
    """What the script trains, and where."""

    backwards: list[CallRecord] = field(default_factory=list)
    steps: list[CallRecord] = field(default_factory=list)
    """Calls of ``optimizer.step()``."""
    probes: list[CallRecord] = field(default_factory=list)
    """Backward passes that do not train: a demonstration, a saliency map."""
    ticks: list[CallRecord] = field(default_factory=list)
    """Calls of ``scheduler.step()``."""
    forwards: dict[cst.Call, Origin] = field(default_factory=dict)
    """Calls that run a model forward."""
    models: dict[Origin, None] = field(default_factory=dict)
    """The whole models whose parameters an optimizer holds."""
    optimizers: dict[Origin, None] = field(default_factory=dict)
    inner: dict[Origin, Klass] = field(default_factory=dict)
    """Those that an optimizer of the script's own class makes and steps for itself, with its class: SAM."""
    train_loops: dict[cst.CSTNode, None] = field(default_factory=dict)
    eval_loops: dict[cst.CSTNode, None] = field(default_factory=dict)


def find(state: State, reach: Reach) -> Training:
    """Find the training of a solved program."""
    found = Training()
    for record in state.calls.values():
        if reach.function_of(record.node) in reach.reachable:
            _classify(state, record, found)
    working = {r.node for r in (*found.backwards, *found.steps)}
    for loop, loaders in state.loaders.items():
        unit = _unit_of(reach, loop)
        if unit is None or not loaders or reach_code(unit, loop) not in reach.reachable:
            continue
        body = _body(loop, unit)
        if _works(reach, body, working):
            found.train_loops[loop] = None
        elif any(node in found.forwards for node in reach.runs(body, unit)):
            found.eval_loops[loop] = None
    _without_probes(reach, found)
    state.trained = _run_to_train(state, reach, found)
    found.inner = {o: klass for o in found.optimizers if (klass := _made_within(reach, o)) is not None}
    found.optimizers = {o: None for o in found.optimizers if o not in found.inner}
    for optimizer in found.optimizers:
        held = origins(state.related.get(optimizer), Role.PARAMETERS)
        sources = [params.source for params in held if params.source is not None]
        models = dict.fromkeys(_trained_as(state, reach, found, optimizer, source) for source in sources)
        found.models.update(dict.fromkeys(m for m in models if not _is_another(state, reach, found, m, models)))
    if not found.optimizers:
        updated_by_hand(state, reach, found)
    return found


def _made_within(reach: Reach, optimizer: Origin) -> Klass | None:
    """The class of optimizers, one of the script's own, whose code makes an optimizer."""
    unit = reach.unit_of(optimizer.node, reach.units[0])
    around = (node for node in unit.names.ancestors(optimizer.node) if isinstance(node, cst.ClassDef))
    klass = next((klass for node in around if (klass := unit.classes.get(node)) is not None), None)
    return klass if klass is not None and klass.role is Role.OPTIMIZER else None


def held_optimizers(state: State, training: Training, slot: Slot | None) -> Iterator[Origin]:
    """The optimizers that something holds; for one that another makes and steps for itself, those around it."""
    for optimizer in origins(slot, Role.OPTIMIZER):
        around = training.inner.get(optimizer)
        if around is None:
            yield optimizer
        else:
            yield from (
                o for o in training.optimizers if (k := state.klass.get(o)) is not None and around in k.lineage()
            )


def _run_to_train(state: State, reach: Reach, found: Training) -> set[Origin]:
    """The models that training loops run forward with gradients."""
    return {
        model
        for loop in found.train_loops
        for node in reach.runs_in(loop)
        if isinstance(node, cst.Call) and node in found.forwards
        if not without_gradient(state.calls[node].unit, node) and not state.calls[node].unit.module_class(node)
        for model in state.forwards[node]
    }


def _is_another(state: State, reach: Reach, found: Training, model: Origin, models: Iterable[Origin]) -> bool:
    """
    Whether a model is another one of the same class, which only code beside the training makes: a test that loads it.

    A method of the class that builds the optimizer seems to hold the parameters of both.
    """
    klass, unit = state.klass.get(model), reach.unit_of(model.node, reach.units[0])
    same = (one for one in models if one is not model and state.klass.get(one) is klass)
    if model in state.trained or klass is None or state.trained.isdisjoint(same):
        return False
    code = unit.names.function(model.node)
    working = {reach.function_of(r.node) for r in (*found.backwards, *found.steps)}
    return isinstance(code, cst.FunctionDef) and working.isdisjoint(reach.below(code))


def without_gradient(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a node is run without gradients, in a block or a decorated function: an evaluation, a teacher."""
    blocks = unit.names.enclosing(node, cst.With)
    function = unit.names.function(node)
    decorators = function.decorators if isinstance(function, cst.FunctionDef) else ()
    contexts = [*(item.item for block in blocks for item in block.items), *(d.decorator for d in decorators)]
    return any(switches_gradients_off(context) for context in contexts)


def switches_gradients_off(context: cst.BaseExpression) -> bool:
    """``torch.no_grad()``, ``@torch.inference_mode()``, ``torch.set_grad_enabled(False)``."""
    for part in descendants(context):
        if isinstance(part, cst.Name) and part.value in questions.gradient_contexts("no gradient"):
            return True
        if isinstance(part, cst.Call) and method_name(part) in questions.gradient_contexts("gradient"):
            given = part.args[0].value if part.args else None
            if isinstance(given, cst.Name) and given.value == "False":
                return True
    return False


def _without_probes(reach: Reach, found: Training) -> None:
    """Tell apart the backward passes that do not train: outside all loops, with no step of an optimizer beside them."""
    looped = [r for r in found.backwards if _looped(reach, r.node, r.unit)]
    if looped:
        found.probes = [r for r in found.backwards if r not in looped and not _steps_behind(reach, found, r)]
        found.backwards = [r for r in found.backwards if r not in found.probes]
    elif not found.optimizers and not found.steps:  # nothing is updated, and nothing is repeated
        found.probes, found.backwards = found.backwards, []
    if found.backwards and _asks_of_rows(reach, found):
        found.probes, found.backwards = [*found.probes, *found.backwards], []


def _asks_of_rows(reach: Reach, found: Training) -> bool:
    """Whether a program without an optimizer reads the gradients of rows alone, and touches no weights: an attack."""
    state = reach.state
    calls = {method_name(call) for call in state.calls if reach.function_of(call) in reach.reachable}
    if found.optimizers or not found.forwards or not calls.isdisjoint(("step", *_WEIGHTS)):
        return False
    nodes = (node for unit in reach.units for node in state.evaluated(unit) if isinstance(node, cst.Attribute))
    grads = [node for node in nodes if node.attr.value == "grad"]
    return bool(grads) and all(origins(state.values.get(node.value), Role.BATCH) for node in grads)


def _steps_behind(reach: Reach, found: Training, record: CallRecord) -> bool:
    """Whether an optimizer is stepped in the same code, outside all loops as well."""
    code = reach.function_of(record.node)
    steps = (s for s in found.steps if reach.function_of(s.node) is code)
    return any(not reach.loops(step.node, step.unit) for step in steps)


def _looped(reach: Reach, call: cst.Call, unit: Unit, seen: frozenset[cst.CSTNode] = frozenset()) -> bool:
    """Whether a call runs in some loop, seen through its function's callers; where nobody is known, it may."""
    code = unit.names.function(call)
    if reach.loops(call, unit):
        return True
    if isinstance(code, cst.Module) or code in seen:
        return False
    sites = reach.sites(code)
    return not sites or any(_looped(reach, site, reach.state.calls[site].unit, seen | {code}) for site in sites)


def updated_by_hand(state: State, reach: Reach, found: Training) -> None:
    """Without an optimizer the script updates parameters by itself: those of the models that its loops run forward."""
    for loop in found.train_loops:
        unit = _unit_of(reach, loop)
        for node in reach.runs(_body(loop, unit), unit) if unit is not None else ():
            if isinstance(node, cst.Call) and node in found.forwards:
                if not any(isinstance(a, cst.ClassDef) for a in state.calls[node].unit.names.ancestors(node)):
                    found.models[whole(state, found.forwards[node])] = None


def reach_code(unit: Unit, node: cst.CSTNode) -> cst.CSTNode:
    """The function, or module, whose code a node is."""
    return unit.names.function(node)


def _unit_of(reach: Reach, node: cst.CSTNode) -> Unit | None:
    return next((unit for unit in reach.units if node in unit.names.parents), None)


def _body(loop: cst.CSTNode, unit: Unit) -> cst.CSTNode:
    """What a loop runs: its block, or the comprehension that a clause belongs to."""
    if isinstance(loop, (cst.For, cst.While)):
        return loop.body
    return next((a for a in unit.names.ancestors(loop) if isinstance(a, cst.BaseComp)), loop)


def _works(reach: Reach, body: cst.CSTNode, working: set[cst.Call]) -> bool:
    """Whether a loop's body trains. A helper that is called without its optimizer does not, though it could."""
    codes = {reach.function_of(call) for call in working}
    for node in descendants(body):
        if node in working:
            return True
        for function in reach.called(node) if isinstance(node, cst.Call) else ():
            trains = not codes.isdisjoint(reach.below(function))
            if trains and not _switched_off(reach, node, function, working):
                return True
    return False


def _switched_off(reach: Reach, call: cst.CSTNode, function: FunctionNode, working: set[cst.Call]) -> bool:
    """Whether all that trains in a function waits for an argument that a call does not give: ``if opt is not None``."""
    assert isinstance(call, cst.Call)
    names = reach.unit(function).names
    given = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    count = len([arg for arg in call.args if arg.keyword is None])
    if any(arg.star for arg in call.args):
        return False
    places = positional(function)
    if isinstance(names.within[function].node, cst.ClassDef) and isinstance(call.func, cst.Attribute):
        places = places[1:]  # the object itself
    optional = {p.name.value for p in places[count:] if _is_off(p.default) and p.name.value not in given}
    inside = [node for node in descendants(function.body) if node in working]
    return bool(inside) and all(
        any(n.value in optional for around in names.enclosing(node, cst.If) for n in nodes_in(around.test, cst.Name))
        for node in inside
    )


def _is_off(default: cst.BaseExpression | None) -> bool:
    """Whether a parameter has a default, one that may switch something off."""
    return default is not None and not (isinstance(default, cst.Name) and default.value == "True")


def whole(state: State, model: Origin) -> Origin:
    """
    The model that a model is a part of, or itself; of several that share it the one that training runs.

    A trainer that happens to be a module is no such whole.
    """
    seen = {model}
    while True:
        owners = [owner for owner in state.wholes.get(model, ()) if not is_trainer(state, owner)]
        owner = next((w for w in owners if w in state.trained), owners[0] if owners else None)
        if owner is None or owner in seen:
            return model
        seen.add(owner)
        model = owner


def hooked(state: State, training: Training, hook: cst.CSTNode) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    """What is given to the models that call a hook in their forward pass, or to those of which they are a part."""
    models = {whole(state, model) for model in state.hooks.get(hook, ())}
    for call, model in training.forwards.items():
        if whole(state, model) in models:
            yield from ((state.calls[call].unit, arg.value) for arg in call.args)


def _trained_as(state: State, reach: Reach, found: Training, optimizer: Origin, model: Origin) -> Origin:
    """The whole that a model is trained as a part of; the model itself where it is trained before that is made:
    ``fit(model, optimizer); model = Larger(model)``."""
    above = whole(state, model)
    unit = reach.unit_of(above.node, reach.units[0])
    order, code = unit.names.order, unit.names.function(above.node)
    if above is model or model.node not in unit.names.parents or unit.names.function(model.node) is not code:
        return above
    steps = [record for record in found.steps if optimizer in origins(record.receiver, Role.OPTIMIZER)]
    training = {each for record in steps for each in (record.node, *reach.above(reach.function_of(record.node)))}
    calls = (n for n in reach.own(code) if isinstance(n, cst.Call) and not training.isdisjoint((n, *reach.called(n))))
    return model if any(order(model.node) < order(call) < order(above.node) for call in calls) else above


def in_model(unit: Unit, node: cst.CSTNode) -> bool:
    """
    Whether code is a part of what a model computes, where it runs its layers: its class has a ``forward``.

    The class of a trainer, or of anything else that runs models, has none. A class that is not known may be a model's.
    """
    around = (unit.classes.get(above) for above in unit.names.ancestors(node) if isinstance(above, cst.ClassDef))
    return any(klass is None or klass.method("forward") is not None for klass in around)


def is_trainer(state: State, module: Origin) -> bool:
    """Whether a module only trains others: its class has no ``forward``, and a loader or an optimizer is in it."""
    return module in state.once(is_trainer, lambda: _trainers(state))


def _trainers(state: State) -> set[Thing]:
    """The modules without a forward pass that keep a loader or an optimizer: none whose own weights that holds, in
    layers that it makes itself."""
    keepers = {thing for thing, held in state.fields() if origins(held, Role.LOADER, Role.OPTIMIZER)}
    keepers -= {params.source for held in state.related.values() for params in origins(held, Role.PARAMETERS)}
    classes = {thing: klass for thing in keepers if (klass := state.klass.get(thing)) is not None}
    return {thing for thing, klass in classes.items() if klass.method("forward") is None}


def _classify(state: State, record: CallRecord, found: Training) -> None:
    name = method_name(record.node)
    qualified = outside_name(record)
    method = name == "backward" and record.receiver is not None and not is_own_method(state, record)
    if method or qualified == "torch.autograd.backward":
        found.backwards.append(record)
    if name in _STEPS and record.receiver is not None:
        if origins(record.receiver, Role.OPTIMIZER):
            found.steps.append(record)
        if origins(record.receiver, Role.SCHEDULER):
            found.ticks.append(record)
        if origins(record.receiver, Role.SCALER):
            found.steps.append(record)
    for origin in origins(record.result, Role.OPTIMIZER):
        if origin.node is record.node:
            found.optimizers[origin] = None
    for model in state.forwards.get(record.node, ()):
        found.forwards[record.node] = model


def is_loss(state: State, record: CallRecord) -> tuple[bool, str]:
    """Whether the receiver of a ``.backward()`` is a training loss, and on what evidence."""
    if record.receiver is not None and outside_name(record) == "torch.autograd.backward":
        given = members(state, record.first) if record.first is not None else Slot()
        state.solver.run()
        found = origins(given, *TENSORS)
    else:
        found = origins(record.receiver, *TENSORS)
    for origin in found:
        if origin.role is Role.LOSS:
            return True, f"a loss, {origin.because}"
    for origin in found:
        if origin.role is Role.OUTPUT:
            return True, f"computed from what was {origin.because}"
    for origin in origins(record.receiver, Role.LOCAL):
        if origin.source is not None and origin.source.role in (Role.OUTPUT, Role.LOSS):
            return True, f"made by an external function from what was {origin.source.because}"
    return False, "nothing shows that it is computed from a model's output"


def is_own_method(state: State, record: CallRecord) -> bool:
    """Whether a method call is one of an object of the program's own classes, or of a thing that is no tensor."""
    held = list(record.receiver.things) if record.receiver is not None else []
    things = [thing for thing in held if not (isinstance(thing, External) and thing.is_none)] or held
    tensors = [t for t in things if isinstance(t, Origin) and t.role in SHARES]
    modules = [state.klass[t] for t in things if isinstance(t, Origin) and t in state.klass]
    own = any(klass.method(method_name(record.node)) is not None for klass in modules)
    others = any(isinstance(t, (Instance, Klass, Sequence, Mapping, External)) for t in things)
    return not tensors and (own or others)
