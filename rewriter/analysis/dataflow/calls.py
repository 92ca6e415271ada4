"""
What a call gives, by what is called: a function or class of the program, a method of something with a role, or
something outside that a table knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from ...facts.roles import TENSORS, Origin, Role
from .call_binding import Evaluate, EvaluatedCall, bind, relate, trailing
from .containers import members
from .external_calls import outside_call
from .methods import if_share, method_call
from .records import declared_fields
from .registries import handed, looked_up
from .solver import Slot, Thing
from .trails import Trail, counts_rows_of
from .values import Bound, CallRecord, External, Function, Inner, Instance, Klass, State, Unit, Unknown


def call_of(state: State, unit: Unit, node: cst.Call, result: Slot, evaluate: Evaluate) -> None:
    """Build the flow of one call."""
    func = evaluate(state, unit, node.func)
    args = [(arg, evaluate(state, unit, arg.value)) for arg in node.args]
    record = CallRecord(unit, node, result=result)
    if isinstance(node.func, cst.Attribute):
        record.receiver = evaluate(state, unit, node.func.value)
    record.first = args[0][1] if args else None
    state.calls[node] = record
    call = EvaluatedCall(state, unit, node, result, args)

    def arrive(thing: Thing) -> None:
        record.callees[thing] = None
        if isinstance(thing, External):
            outside_call(call, thing.qualified)
        elif isinstance(thing, Function):
            bind(call, thing)
            _configured(call, thing, bound=False)
        elif isinstance(thing, Klass):
            _construct(call, thing)
        elif isinstance(thing, Bound) and _is_criterion(thing.receiver) and thing.name in ("forward", "__call__"):
            arrive(thing.receiver)
        elif isinstance(thing, Bound):
            method_call(call, thing)
            method = state.method_of(thing)
            if method is not None:
                _configured(call, method, bound=True)
        elif isinstance(thing, (Origin, Instance)):
            _called(call, thing)
        elif isinstance(thing, Inner):  # ``for layer in net.children(): x = layer(x)``
            state.solver.watch(call.everything, lambda given: if_share(call, given, thing.model))
        elif isinstance(thing, Unknown):  # an object of unknown origin is called: a loss module of some library, say
            call.give_host_values()
            state.solver.add(result, state.unknown(node, f"{thing.qualified}()", result))

    if node in state.aside:
        state.aside[node] = lambda: state.solver.watch(func, arrive)
    else:
        state.solver.watch(func, arrive)
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in ("format", "join", "joinpath"):
        state.solver.flow(call.everything, result, trailing)
    if counts_rows_of(node) is not None:
        state.solver.add(result, state.trace(node, Trail.LENGTH))
    if isinstance(node.func, cst.Attribute) and node.func.attr.value in ("parameters", "named_parameters"):
        _part_parameters(call, node.func.value, evaluate)


def _is_criterion(thing: Thing) -> bool:
    return isinstance(thing, Origin) and thing.role is Role.CRITERION


def _part_parameters(call: EvaluatedCall, part: cst.BaseExpression, evaluate: Evaluate) -> None:
    """``net[0].parameters()`` and ``net.fc.parameters()`` are parameters of the model, whatever the part is."""
    while isinstance(part, (cst.Attribute, cst.Subscript)):
        part = part.value

    def arrive(thing: Thing) -> None:
        if isinstance(thing, Origin) and thing.role is Role.MODEL:
            call.make(Role.PARAMETERS, "a model's parameters", source=thing)

    call.state.solver.watch(evaluate(call.state, call.unit, part), arrive)


def _configured(call: EvaluatedCall, function: Function, *, bound: bool) -> None:
    """A function that makes what configuration names, of the module that it is handed."""
    found = handed(call, function, bound)
    if found is None:
        return
    module, inner = found
    state = call.state

    named = Slot()
    state.solver.watch(named, lambda thing: make(inner, thing))
    state.solver.watch(
        module, lambda t: looked_up(state, call.unit, t.qualified, None, named) if isinstance(t, External) else None
    )


def make(call: EvaluatedCall, thing: Thing) -> None:
    """Let a call hold what something that was looked up makes."""
    if isinstance(thing, Klass):
        _construct(call, thing)
    elif isinstance(thing, Function):
        bind(call, thing)
    elif isinstance(thing, External):
        outside_call(call, thing.qualified)


def _construct(call: EvaluatedCall, klass: Klass) -> None:
    state = call.state
    made: Thing
    if klass.role is not None:
        kind = f"an instance of {klass.node.name.value}, a {klass.externals[0] if klass.externals else 'known class'}"
        made = call.make(klass.role, kind, klass.node.name.value, klass=klass)
        assert isinstance(made, Origin)
        state.klass[made] = klass
        state.solver.add(state.kinds(made), klass)
        relate(call, made)
    else:
        made = state.instance(klass, call.node)
        state.solver.add(call.result, made)
        for name, slot in _handed(call, klass):
            state.solver.flow(slot, state.field(made, name))
    init = klass.method("__init__")
    if init is not None:
        bind(call, init, made, gives=False)
    for name in ("__post_init__", "__attrs_post_init__") if init is None else ():
        after = klass.method(name)
        if after is not None:  # of a data class: the constructor that is made for it calls it
            state.implied.add(after.node)
            bind(replace(call, args=[]), after, made, gives=False)
    for name in ("__len__", "__getitem__", "__iter__", "__next__"):
        method = klass.method(name)
        if method is not None:
            state.escape(method.node)


def _handed(call: EvaluatedCall, klass: Klass) -> Iterator[tuple[str, Slot]]:
    """What a call gives to the fields of a data class or a named tuple."""
    fields = declared_fields(klass)
    yield from zip(fields, call.positional(), strict=False)
    yield from ((arg.keyword.value, slot) for arg, slot in call.args if arg.keyword and arg.keyword.value in fields)


def _forward(call: EvaluatedCall, model: Origin, kind: Thing) -> None:
    forward = kind.method("forward") if isinstance(kind, Klass) else None
    if forward is not None:
        bind(call, forward, model, gives=False)


def _layer(call: EvaluatedCall, layer: Thing) -> None:
    """``nn.Sequential`` runs its layers."""
    if isinstance(layer, Origin) and layer.role is Role.MODEL:
        call.state.solver.watch(call.state.kinds(layer), lambda kind: _forward(call, layer, kind))


def _called(call: EvaluatedCall, thing: Origin | Instance) -> None:
    """A thing itself is called: a model's forward, a criterion, an object with ``__call__``."""
    state = call.state
    klass = state.klass.get(thing) if isinstance(thing, Origin) else thing.klass
    if isinstance(thing, Instance):
        method = klass.method("__call__") if klass else None
        if method is not None:
            bind(call, method, thing)
        return
    if thing.role is Role.MODEL:
        call.make_output("given by a model's forward", thing)
        if klass is not None:
            state.solver.add(state.kinds(thing), klass)
        state.solver.watch(state.kinds(thing), lambda kind: _forward(call, thing, kind))
        if thing.qualified == "torch.nn.Sequential" and isinstance(thing.node, cst.Call):
            for arg in thing.node.args:
                state.solver.watch(members(state, state.slot(arg.value)), lambda layer: _layer(call, layer))
    elif thing.role is Role.CRITERION:
        call.make(Role.LOSS, f"given by {thing.qualified or 'a loss module'}", source=thing)
    elif thing.role in TENSORS:
        state.solver.add(call.result, thing)
