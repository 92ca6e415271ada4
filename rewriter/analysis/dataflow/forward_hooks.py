"""Functions that a model calls in each forward pass: what ``register_forward_hook`` is given."""

from __future__ import annotations

from ...facts.roles import Origin, Role
from ..syntax.nodes import positional
from .call_binding import EvaluatedCall, escape
from .solver import Thing
from .values import Bound, Function, Instance

HOOKING = frozenset({"register_forward_hook", "register_forward_pre_hook"})


def hook_in(call: EvaluatedCall, model: Origin, name: str) -> None:
    """Let a hook hold the module that runs it, and what that gives."""
    call.state.solver.watch(call.first(), lambda thing: _hooked(call, model, name, thing))


def _hooked(call: EvaluatedCall, model: Origin, name: str, thing: Thing) -> None:
    function = thing if isinstance(thing, Function) else None
    places = [param.name.value for param in positional(function.node)] if function is not None else []
    if isinstance(thing, Bound) and isinstance(thing.receiver, (Origin, Instance)):
        function = call.state.method_of(thing)
        places = [param.name.value for param in positional(function.node)][1:] if function is not None else []
    if function is None or not places:
        return
    state, bindings = call.state, function.unit.names.scopes[function.node].bindings
    state.reached(call.unit, call.node, function.node, lambda: None)
    escape(state, thing, call.node)
    state.hooks.setdefault(function.node, {})[model] = None
    state.solver.add(state.binding(bindings[places[0]]), model)
    if name == "register_forward_hook" and len(places) > 2:
        given = state.origin(Role.OUTPUT, call.node, "given to a forward hook", source=model)
        state.solver.add(state.binding(bindings[places[-1]]), given)
