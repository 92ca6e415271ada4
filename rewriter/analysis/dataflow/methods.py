"""What a method call gives: by the role of the object, or by its use where nothing is known of the object."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from ...facts.container_methods import adds_one
from ...facts.roles import SHARES, TENSORS, Origin, Role
from ...facts.torch_api import questions, surroundings, tensor_parts
from ..syntax.nodes import dotted
from .call_binding import EvaluatedCall, bind
from .command_lines import of_parser
from .containers import bind_self, element, is_by_name, key_of, merge, named_layers, put_in
from .drawn_batches import drawn
from .external_calls import set_parts
from .forward_hooks import HOOKING, hook_in
from .solver import Slot, Thing
from .trails import Trace, Trail
from .values import Above, Bound, Function, Inner, Instance, Klass, Mapping, Sequence, State, Unknown, Wrapped

_INNER = frozenset({"modules", "children", "named_modules", "named_children"})


def method_call(call: EvaluatedCall, bound: Bound) -> None:
    """Build the flow of a method call."""
    state, receiver, name = call.state, bound.receiver, bound.name
    klass = state.class_of(receiver)
    method = klass.method(name) if klass is not None else None
    if isinstance(receiver, Instance) and _by_any_name(call, receiver, missing=method is None):
        return
    if method is not None:
        bind(call, method, None if method.decorated("staticmethod") else receiver)
    if isinstance(receiver, Origin):
        _METHODS.get(receiver.role, _tensor_method)(call, receiver, name)
        if method is None:
            call.watch_everything("called back", lambda t: _called_back(call, t))
    elif isinstance(receiver, Mapping):
        _mapping_method(call, receiver, name)
    elif isinstance(receiver, Sequence):
        _sequence_method(call, receiver, name)
    elif isinstance(receiver, Unknown):
        _unknown_method(call, receiver, name)
    elif isinstance(receiver, Trace):
        _followed_method(call, receiver, name)
    elif isinstance(receiver, Wrapped):
        if name in questions.keeps_module():
            state.solver.add(call.result, receiver)
    elif isinstance(receiver, Inner):
        _inner_method(call, receiver, name)
    elif isinstance(receiver, Klass):
        own = receiver.method(name)
        if own is not None:
            bind(call, own, receiver if own.decorated("classmethod") else None)
    elif isinstance(receiver, Above):
        own = receiver.method(name)
        if own is not None:
            bind(call, own, receiver.receiver)
        elif isinstance(receiver.receiver, Origin):
            for base in receiver.below.externals if name == "__init__" else ():
                set_parts(call, receiver.receiver, base)
            _METHODS.get(receiver.receiver.role, _tensor_method)(call, receiver.receiver, name)


def _by_any_name(call: EvaluatedCall, receiver: Instance, *, missing: bool) -> bool:
    """What ``__getattr__`` gives for a method that the class has not, and ``__getattribute__`` for any, is called."""
    state, klass = call.state, receiver.klass
    method = klass.method("__getattribute__") or (klass.method("__getattr__") if missing else None)
    if method is None:
        return False
    state.reached(call.unit, call.node, method.node, lambda: bind_self(state, receiver, method))
    state.solver.watch(state.returns(method.node), lambda t: bind(call, t) if isinstance(t, Function) else None)
    return missing


def _followed_method(call: EvaluatedCall, trace: Trace, name: str) -> None:
    """``now.strftime(...)`` is still a name made from the clock; what is read from a file has nothing to do with it.
    Some methods of a set give a set."""
    if trace.trail is not Trail.FILE and (trace.trail is not Trail.SET or name in _SETS):
        call.state.solver.add(call.result, trace)


_SETS = frozenset("copy difference intersection symmetric_difference union".split())


def _called_back(call: EvaluatedCall, thing: Thing) -> None:
    """A function handed to a method of torch's is called by it: the closure of ``optimizer.step``, ``model.apply``."""
    if isinstance(thing, Function):
        state = call.state
        state.reached(call.unit, call.node, thing.node, lambda: None)
        state.escape(thing.node, call.node)
        state.solver.flow(state.returns(thing.node), call.result)


def _model_method(call: EvaluatedCall, model: Origin, name: str) -> None:
    state = call.state
    if name in questions.keeps_module():
        state.solver.add(call.result, model)
    elif name in ("parameters", "named_parameters"):
        call.make(Role.PARAMETERS, "a model's parameters", source=model)
    elif name == "state_dict":
        call.make(Role.STATE, "a model's state dict", source=model)
    elif name in _INNER:
        _inner(call, model, name)
    elif name in HOOKING:
        hook_in(call, model, name)
    elif name in ("append", "extend", "insert", "add_module", "register_module", "update") and call.args:
        put_in(state, model, call.args[-1][1])
    elif is_by_name(model) and hasattr(dict, name):
        layers = state.mapping(call.node)
        named_layers(state, model, None, layers.rest)
        _mapping_method(call, layers, name)
    elif name in ("buffers", "named_buffers", "size"):
        return
    else:
        state.solver.watch(call.everything, lambda t: if_share(call, t, model))


def _inner(call: EvaluatedCall, model: Origin, name: str) -> None:
    """``for name, module in model.named_modules()``."""
    state = call.state
    given, row = state.sequence(call.node, name), state.sequence(call.node, "row")
    state.solver.add(row.rest, state.inner(model))
    state.solver.add(given.rest, row if name.startswith("named_") else state.inner(model))
    state.solver.add(call.result, given)


def _inner_method(call: EvaluatedCall, module: Inner, name: str) -> None:
    if name in ("parameters", "named_parameters"):
        call.make(Role.PARAMETERS, "the parameters of a module of a model", source=module.model)
    elif name in _INNER:
        _inner(call, module.model, name)
    elif name in HOOKING:
        hook_in(call, module.model, name)


def if_share(call: EvaluatedCall, thing: Thing, model: Origin) -> None:
    """What a model, or a module inside it, gives for a tensor of a shard."""
    if not isinstance(thing, Origin) or thing.role not in TENSORS:
        return
    if model.role is Role.CRITERION:  # no model runs forward there
        call.make(Role.OUTPUT, "given by a method of a loss module", source=model)
    else:
        call.make_output("given by a method of a model", model)


def _optimizer_method(call: EvaluatedCall, origin: Origin, name: str) -> None:
    if name == "state_dict":
        call.make(Role.STATE, f"the state dict of a {origin.role.value}", source=origin)


def _loader_method(call: EvaluatedCall, origin: Origin, name: str) -> None:
    if name == "__iter__":
        call.state.solver.add(call.result, origin)
    elif name == "__next__":
        single = Slot()
        call.state.solver.add(single, origin)
        call.state.solver.flow(element(call.state, single), call.result)
        drawn(call)


def _tensor_method(call: EvaluatedCall, tensor: Origin, name: str) -> None:
    if tensor.role in SHARES:
        host = name in questions.leaves_device() or tensor_parts.asks_how(name)
        call.state.solver.add(call.result, call.state.local(tensor) if host else tensor)
        call.give_tensors()
    elif tensor.role in (Role.CHECKPOINT, Role.STATE) and name in ("get", "pop", "copy"):
        call.state.solver.add(call.result, tensor)


def _device_method(call: EvaluatedCall, origin: Origin, name: str) -> None:
    return


def _scaler_method(call: EvaluatedCall, scaler: Origin, name: str) -> None:
    if name == "scale":
        call.state.solver.flow(call.first(), call.result)
    elif name == "state_dict":
        call.make(Role.STATE, "a scaler's state dict", source=scaler)


def _accelerator_method(call: EvaluatedCall, accelerator: Origin, name: str) -> None:
    state = call.state
    if name in _HANDS_BACK:
        slots = call.positional()
        for slot in slots if name != "unwrap_model" else ():
            state.solver.watch(slot, lambda t: state.used(t, "prepared") if isinstance(t, Unknown) else None)
        if len(slots) == 1:
            state.solver.flow(slots[0], call.result)
        else:
            given = state.sequence(call.node)
            if not given.items:
                given.items.extend(slots)
            state.solver.add(call.result, given)
    elif name == "get_state_dict":
        state.solver.watch(call.first(), lambda t: _state_of(call, t))


_HANDS_BACK = frozenset(
    "prepare unwrap_model prepare_model prepare_optimizer prepare_data_loader "
    "setup setup_module setup_optimizers setup_dataloaders".split()
)
"""Methods that give back what they are given, prepared or unwrapped; the last four are those of Fabric."""


def _state_of(call: EvaluatedCall, thing: Thing) -> None:
    if isinstance(thing, Origin) and thing.role is Role.MODEL:
        call.make(Role.STATE, "a model's state dict", source=thing)


_METHODS: dict[Role, Callable[[EvaluatedCall, Origin, str], None]] = {
    Role.MODEL: _model_method,
    Role.CRITERION: _model_method,
    Role.OPTIMIZER: _optimizer_method,
    Role.SCHEDULER: _optimizer_method,
    Role.LOADER: _loader_method,
    Role.SCALER: _scaler_method,
    Role.DEVICE: _device_method,
    Role.ACCELERATOR: _accelerator_method,
}


def _mapping_method(call: EvaluatedCall, mapping: Mapping, name: str) -> None:
    state = call.state
    values = mapping.values
    if name == "items":
        pairs = state.sequence(call.node, "items")
        pair = state.sequence(call.node, "pair")
        if not pair.items:
            pair.items.extend([Slot(), values])
        state.solver.add(pairs.rest, pair)
        state.solver.add(call.result, pairs)
    elif name == "values":
        given = state.sequence(call.node, "values")
        state.solver.flow(values, given.rest)
        state.solver.add(call.result, given)
    elif name in ("get", "pop", "setdefault"):
        key = key_of(call.node.args[0].value) if call.node.args else None
        held = state.entry(mapping, key)
        for slot in (held, mapping.rest) if key is not None else (values,):
            state.solver.flow(slot, call.result)
        for slot in call.positional()[1:]:
            state.solver.flow(slot, held if name == "setdefault" else call.result)
    elif name == "update":
        state.solver.watch(call.first(), lambda t: merge(state, mapping, t))
    elif name == "copy":
        state.solver.add(call.result, mapping)


def _sequence_method(call: EvaluatedCall, sequence: Sequence, name: str) -> None:
    state = call.state
    if adds_one(name) and call.args:
        state.solver.flow(call.args[-1][1], sequence.rest)
    elif name in ("extend", "update") and call.args:
        state.solver.flow(element(state, call.first()), sequence.rest)
    elif name in ("pop", "popleft"):
        state.solver.flow(sequence.rest, call.result)
    elif name in ("copy", "__iter__"):
        state.solver.add(call.result, sequence)
    elif name == "__next__":
        state.solver.flow(sequence.rest, call.result)
        drawn(call)


_BY_USE: dict[str, tuple[Role, str]] = {
    "parameters": (Role.MODEL, "its .parameters() is called"),
    "state_dict": (Role.MODEL, "its .state_dict() is called"),
    "zero_grad": (Role.OPTIMIZER, "its .zero_grad() is called"),
}


def _unknown_method(call: EvaluatedCall, unknown: Unknown, name: str) -> None:
    """Let the use of something of unknown origin tell what it is."""
    state = call.state
    if name in questions.keeps_module():
        state.solver.add(call.result, unknown)
    elif name in _BY_USE and not questions.averages_weights(unknown.qualified):
        role, why = _BY_USE[name]
        if name in ("zero_grad", "state_dict") and any(known.node is unknown.node for known in state.related):
            return  # an optimizer or a scheduler, by what it was built from
        if (name == "zero_grad" and _is_module(call)) or (name == "state_dict" and _is_stepped(call)):
            return
        because = f"made by {unknown.qualified or 'a call'}, and {why}"
        origin = state.origin(role, unknown.node, because, unknown.qualified)
        if role is Role.OPTIMIZER:
            _hold_models_given(state, origin)
        state.solver.add(unknown.home, origin)
    else:
        inner = state.unknown(call.node, f"{unknown.qualified}.{name}", call.result)
        state.solver.add(call.result, inner)
        of_parser(call, unknown.qualified, name, inner)
        call.give_host_values()
        if surroundings.lists(f"{unknown.qualified}.{name}"):
            state.solver.add(call.result, state.trace(call.node, Trail.LISTING))


_OF_MODULES = frozenset("parameters named_parameters train eval modules children forward".split())


def _is_module(call: EvaluatedCall) -> bool:
    """Whether the object of a method call is called, or asked for its parameters, elsewhere: no optimizer is."""
    holder = dotted(call.node.func).rpartition(".")[0]
    if not holder:
        return False
    for other in call.unit.names.calls:
        asked, _, method = dotted(other.func).rpartition(".")
        if (asked == holder and method in _OF_MODULES) or dotted(other.func) == holder:
            return True
    return False


def _is_stepped(call: EvaluatedCall) -> bool:
    """Whether what is called like the object of a method call is stepped somewhere: that is no model, whose state
    others have, too."""
    name = dotted(call.node.func).rpartition(".")[0].rpartition(".")[2]
    others = (dotted(one.func) for unit in call.state.units.values() for one in unit.names.calls)
    return bool(name) and any(f".{other}".endswith(f".{name}.step") for other in others)


def _hold_models_given(state: State, optimizer: Origin) -> None:
    """Let an optimizer that code outside the program has made hold the parameters of the models given to that:
    ``get_optimizer(model, args)``."""
    if optimizer in state.related or not isinstance(optimizer.node, cst.Call):
        return
    held = state.related[optimizer] = Slot()

    def arrive(thing: Thing) -> None:
        if isinstance(thing, Origin) and thing.role is Role.MODEL:
            because = "the parameters of the model that the optimizer was made for"
            state.solver.add(held, state.origin(Role.PARAMETERS, optimizer.node, because, "", thing))

    for arg in optimizer.node.args:
        state.solver.watch(state.slot(arg.value), arrive)
