"""
Wrap the model that trains, and call the wrapper.

Gradients are averaged by the wrapper: `DistributedDataParallel`, or what `prepare` or `setup` returns. A model that is
not wrapped, or whose training step calls the plain model inside the wrapper, trains on each process by itself: the
weights drift apart, without any error.

    -ddp = DDP(model, device_ids=[local_rank])
    -loss = criterion(model(x), y)
    +ddp = DDP(model, device_ids=[local_rank])
    +loss = criterion(ddp(x), y)

A script that averages the gradients by itself (`dist.all_reduce(p.grad)`) needs no wrapper.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.values import CallRecord, Unit, origins
from ..analysis.syntax.walk import descendants
from ..analysis.training.training import whole, without_gradient
from ..analysis.training.weights import has_weights, makes_weights
from ..facts.roles import Origin, Role
from ..facts.torch_api import process_calls
from ..findings import Finding, Severity
from .program import AuditedProgram, Dialect
from .rule import AuditRule, Found, line_of


def unwrapped_models(program: AuditedProgram) -> Found:
    """The models that train without a wrapper, and the training steps that bypass it."""
    if program.unfollowed is not None or _averages_by_hand(program):
        return
    told: set[Origin] = set()
    for record in program.training.steps:
        for model in _stepped(program, record):
            unit = program.unit_of(model.node)
            if model in told or unit is None or not _is_trained(program, model):
                continue
            told.add(model)
            if not has_weights(program.state, model):
                continue
            if model not in program.wrapped and not _handed_on(program, model):
                yield (
                    unit,
                    Finding(
                        "unwrapped-model",
                        model.node,
                        "an optimizer trains this model, but nothing wraps it: each process trains a model of its own, "
                        "and the weights drift apart",
                        "wrap it: " + _wrapper(program),
                        Severity.ERROR,
                    ),
                )
    for unit, call in _training_calls(program):
        called = [whole(program.state, model) for model in program.state.forwards[call]]
        if program.is_wrapped(unit, call.func) is False and all(_passes_by(program, model) for model in called):
            text = line_of(unit.names.module.code_for_node(call))
            yield (
                unit,
                Finding(
                    "unwrapped-model",
                    call,
                    f"`{text}` calls the plain model, not its wrapper: the gradients of this step are not averaged",
                    "call what the wrapper, `prepare` or `setup` returned",
                    Severity.ERROR,
                ),
            )


def _passes_by(program: AuditedProgram, model: Origin) -> bool:
    """
    Whether a plain model computes with parameters that a wrapper elsewhere averages.

    A module that is handed the wrapped model, and makes no parameters itself, only does if it runs that model for its
    gradients: a loss that keeps the model which teaches does not.
    """
    if model in program.wrapped_itself:
        return has_weights(program.state, model)
    return model in program.wrapped and (makes_weights(program.state, model) or _runs_plain(program, model))


def _runs_plain(program: AuditedProgram, model: Origin) -> bool:
    """Whether the class of a module calls a model that it is handed, and not the wrapper of it."""
    klass = program.state.klass.get(model)
    for call in descendants(klass.node) if klass is not None else ():
        if klass is None or not isinstance(call, cst.Call) or without_gradient(klass.unit, call):
            continue
        sources = program.tracer.sources(klass.unit, call.func)
        held = {o for source in sources for o in origins(program.state.values.get(source.node), Role.MODEL)}
        if not held.isdisjoint(program.wrapped_itself) and program.is_wrapped(klass.unit, call.func) is not True:
            return True
    return False


def _handed_on(program: AuditedProgram, model: Origin) -> bool:
    """Whether a call that nobody can follow is given the model: a module that is chosen at run time may wrap it."""
    for record in program.records:
        if not record.callees and not program.reach.called(record.node):
            given = (program.state.values.get(arg.value) for arg in record.node.args)
            if any(model is held for slot in given for held in origins(slot, Role.MODEL)):
                return True
    return False


def _wrapper(program: AuditedProgram) -> str:
    if program.by_hand:
        return "model = DistributedDataParallel(model)"
    if program.dialects == {Dialect.FABRIC}:
        return "model, optimizer = fabric.setup(model, optimizer)"
    return "model, optimizer = accelerator.prepare(model, optimizer)"


_WEIGHTS = frozenset({"grad", "parameters", "named_parameters", "param_groups"})
"""Names by which a script gets at the gradients and the weights of a model."""


def _averages_by_hand(program: AuditedProgram) -> bool:
    """Whether the script averages gradients or weights by itself."""
    training: set[cst.CSTNode] = {unit.names.module for unit in program.reach.units}
    training |= {record.unit.names.function(record.node) for record in program.training.backwards}
    for optimizer in program.training.optimizers:
        unit = program.unit_of(optimizer.node)
        training |= {unit.names.function(optimizer.node)} if unit is not None else set()
    for record in program.state.calls.values():
        if not _reduces(record):
            continue
        code = record.unit.names.function(record.node)
        if _joins_weights(program, record) if code in training else _names_weights(code):
            return True
    return False


def _joins_weights(program: AuditedProgram, record: CallRecord) -> bool:
    """
    Whether what a call joins is made of gradients or weights: by its argument, or by a loop around it.

    The code that trains has the gradients and the parameters in it anyway: a loss is joined there, too.
    """
    loops = record.unit.names.enclosing(record.node, cst.For, cst.ListComp, cst.GeneratorExp)
    iterated = [loop.iter if isinstance(loop, cst.For) else loop for loop in loops]
    for part in (*(arg.value for arg in record.node.args), *iterated):
        reads = [node for node in descendants(part) if isinstance(node, (cst.Name, cst.Attribute))]
        if _names_weights(part):
            return True
        if any(_names_weights(s.node) for read in reads for s in program.tracer.sources(record.unit, read)):
            return True
    return False


def _names_weights(code: cst.CSTNode) -> bool:
    """Whether some code names gradients, or the weights of a model."""
    return any(isinstance(node, cst.Attribute) and node.attr.value in _WEIGHTS for node in descendants(code))


def _reduces(record: CallRecord) -> bool:
    found = process_calls.collective(outside_name(record))
    return found is not None and found.op == "reduce"


def _stepped(program: AuditedProgram, record: CallRecord) -> Iterator[Origin]:
    """The whole models whose parameters a step changes."""
    for optimizer in origins(record.receiver, Role.OPTIMIZER):
        for held in origins(program.state.related.get(optimizer), Role.PARAMETERS):
            if held.source is not None and held.source.role is Role.MODEL:
                yield whole(program.state, held.source)


def _is_trained(program: AuditedProgram, model: Origin) -> bool:
    """Whether a training loop calls a model: a model that is only built belongs to another program."""
    trained = {_whole(program, call) for _, call in _training_calls(program)}
    return model in trained


def _whole(program: AuditedProgram, call: cst.Call) -> Origin:
    return whole(program.state, program.training.forwards[call])


def _training_calls(program: AuditedProgram) -> Iterator[tuple[Unit, cst.Call]]:
    """The calls of models in training steps, except calls of a part by the model that contains it."""
    seen: set[cst.CSTNode] = set()
    for unit, body in _training_code(program):
        for node in program.reach.runs(body, unit):
            if not isinstance(node, cst.Call) or node in seen or node not in program.training.forwards:
                continue
            seen.add(node)
            record = program.state.calls[node]
            if not _in_modules(program, record.unit, node) and not without_gradient(record.unit, node):
                yield record.unit, node


def _in_modules(program: AuditedProgram, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()) -> bool:
    """Whether only classes of modules run a node: it is in one, or in a function that only such classes call."""
    if unit.module_class(node) is not None:
        return True
    return program.at_every_site(
        unit, node, seen, lambda site, known: _in_modules(program, site.unit, site.node, known)
    )


def _training_code(program: AuditedProgram) -> Iterator[tuple[Unit, cst.CSTNode]]:
    """The loops that train, and the code around each backward pass that has no loader."""
    for loop in program.training.train_loops:
        unit = program.unit_of(loop)
        if unit is not None and isinstance(loop, (cst.For, cst.While)):
            yield unit, loop.body
    for record in program.training.backwards:
        loops = [n for n in program.reach.loops(record.node, record.unit) if isinstance(n, (cst.For, cst.While))]
        yield record.unit, loops[0] if loops else _body(record.unit.names.function(record.node))


def _body(code: cst.CSTNode) -> cst.CSTNode:
    return code if isinstance(code, cst.Module) else getattr(code, "body", code)


RULE = AuditRule("unwrapped-model", __doc__, unwrapped_models)
