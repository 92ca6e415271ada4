"""A call with its arguments evaluated, and the edges by which its arguments reach a function of the program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from ...facts.roles import SHARES, TENSORS, Origin, Role
from ..syntax.nodes import FunctionNode, parameters, positional
from .call_results import call_results
from .callees import method_name
from .containers import element, members
from .solver import Slot, Thing
from .trails import OF_ITS_OWN, Trace
from .values import Bound, CallRecord, Function, Instance, Klass, Mapping, Sequence, State, Unit, decorators

Evaluate = Callable[[State, Unit, cst.BaseExpression], Slot]
"""Gives the slot of an expression's value. It is passed in, because ``expressions`` imports this module."""


@dataclass(eq=False)
class EvaluatedCall:
    """One call with its arguments evaluated."""

    state: State
    unit: Unit
    node: cst.Call
    result: Slot
    args: list[tuple[cst.Arg, Slot]]
    _said: set[str] = field(default_factory=set)
    """What has been said of the call: it need not be said again for each thing that is called here."""

    def positional(self) -> list[Slot]:
        """The slots of the plain positional arguments, up to the first starred one."""
        found = []
        for arg, slot in self.args:
            if arg.star:
                break
            if arg.keyword is None:
                found.append(slot)
        return found

    def first(self) -> Slot:
        """The slot of the first argument, empty where there is none."""
        return self.args[0][1] if self.args else Slot()

    @cached_property
    def everything(self) -> Slot:
        """A slot of all arguments and all that containers among them hold."""
        result = Slot()
        for _, slot in self.args:
            self.state.solver.flow(members(self.state, slot), result)
        return result

    def watch_everything(self, what: str, watcher: Callable[[Thing], None]) -> None:
        """Watch all arguments, once for each ``what``, however many things are called here."""
        if what not in self._said:
            self._said.add(what)
            self.state.solver.watch(self.everything, watcher)

    def give_tensors(self) -> None:
        """The call gives the tensors of a shard that it is handed: it computes with them."""
        self.watch_everything("tensors", lambda t: self._give(tensors(t)))

    def give_host_values(self) -> None:
        """The call gives values of this process, as code outside torch does for the tensors of a shard."""
        self.watch_everything("host values", lambda t: self._give(host(self.state, t)))

    def _give(self, thing: Thing | None) -> None:
        if thing is not None:
            self.state.solver.add(self.result, thing)

    def make_output(self, because: str, model: Origin) -> None:
        """
        Let the call give what a model computes.

        All layers of a program share one thing: those in classes of modules, and those in files without a backward
        pass. Each would travel through all the layers after it.
        """
        self.state.forwards.setdefault(self.node, {})[model] = None
        if self.unit.goes_backward and self.unit.module_class(self.node) is None:
            self.make(Role.OUTPUT, because, source=model)
        else:
            self.state.solver.add(
                self.result, self.state.origin(Role.OUTPUT, next(iter(self.state.units.values())).names.module, because)
            )

    def make(
        self, role: Role, because: str, qualified: str = "", source: Origin | None = None, klass: Klass | None = None
    ) -> Origin:
        """Let the call give a new thing with a role."""
        origin = self.state.origin(role, self.node, because, qualified, source, klass)
        self.state.solver.add(self.result, origin)
        return origin


def bind(call: EvaluatedCall, function: Function, receiver: Thing | None = None, *, gives: bool = True) -> None:
    """Let the parameters of a function hold the arguments of a call, and the call what the function returns."""
    call.state.reached(call.unit, call.node, function.node, lambda: _hand(call, function, receiver))
    if gives:
        _give(call, function)


def _hand(call: EvaluatedCall, function: Function, receiver: Thing | None) -> None:
    """Let the parameters of a function hold the arguments of a call."""
    state, scope = call.state, function.unit.names.scopes[function.node]

    def param(name: str) -> Slot:
        return state.binding(scope.bindings[name])

    places = [p.name.value for p in positional(function.node)]
    if receiver is not None and places:
        state.solver.add(param(places.pop(0)), receiver)
    known = {p.name.value for p in parameters(function.node)}
    for index, slot in enumerate(call.positional()):
        if index < len(places):
            state.solver.flow(slot, param(places[index]))
        elif isinstance(function.node.params.star_arg, cst.Param):
            rest = state.sequence(function.node, "*args")
            state.solver.flow(slot, rest.rest)
            state.solver.flow(slot, rest.taken.setdefault(index - len(places), Slot()))
            state.solver.add(param(function.node.params.star_arg.name.value), rest)
    for arg, slot in call.args:
        if arg.keyword is not None and arg.keyword.value in known:
            state.solver.flow(slot, param(arg.keyword.value))
        elif arg.star == "*":
            for place, name in enumerate(places[len(call.positional()) :]):
                _unpack(state, slot, place, param(name))
        elif arg.star == "**":
            _spread(call, slot, known, param)


def _unpack(state: State, slot: Slot, place: int, target: Slot) -> None:
    """Let a parameter hold what ``*args`` gives to it: what was taken in at that place, where calls are handed on."""
    others = Slot()

    def arrive(thing: Thing) -> None:
        if isinstance(thing, Sequence) and thing.taken:
            state.solver.flow(thing.taken.setdefault(place, Slot()), target)
        else:
            state.solver.add(others, thing)

    state.solver.watch(slot, arrive)
    state.solver.flow(element(state, others), target)


def _give(call: EvaluatedCall, function: Function) -> None:
    """
    Let a call hold what a function returns. Of what its parameters hold, only what this call hands over comes back:
    ``model = train(model)`` gives another model for each call.
    """
    state, returned = call.state, call.state.returns(function.node)
    bindings = function.unit.names.scopes[function.node].bindings
    params = [state.binding(bindings[param.name.value]) for param in parameters(function.node)]
    handed = [slot for _, slot in call.args]
    plain = not any(arg.star for arg, _ in call.args)

    results = call_results(state)

    def arrive(thing: Thing) -> Thing | None:
        if plain and _is_itself(thing) and any(thing in slot.things for slot in params):
            return thing if any(thing in slot.things for slot in handed) else None
        return results.of(function, call.node, thing, pass_on)

    def pass_on(source: Slot, target: Slot) -> None:
        def come(thing: Thing) -> None:
            if _is_itself(thing) and thing in source.things:
                state.solver.add(target, thing)

        state.solver.flow(source, target, arrive)
        for slot in handed if plain else ():
            state.solver.watch(slot, come)  # what another call has handed over before is returned already

    pass_on(returned, call.result)


def _is_itself(thing: Thing) -> bool:
    """Whether a thing stays the same one where a function returns it."""
    return isinstance(thing, Origin) and thing.role in (Role.MODEL, Role.OPTIMIZER, Role.SCHEDULER, Role.LOADER)


def _spread(call: EvaluatedCall, slot: Slot, known: set[str], param: Callable[[str], Slot]) -> None:
    def arrive(thing: Thing) -> None:
        if isinstance(thing, Mapping):
            for key in known:
                call.state.solver.flow(call.state.entry(thing, key), param(key))

    call.state.solver.watch(slot, arrive)


def tensors(thing: Thing) -> Thing | None:
    """Let only tensors of a shard pass."""
    return thing if isinstance(thing, Origin) and thing.role in TENSORS else None


def trailing(thing: Thing) -> Thing | None:
    """Let only what is followed pass, and no set: what a function computes from a set has an order of its own."""
    return thing if isinstance(thing, Trace) and thing.trail not in OF_ITS_OWN else None


def host(state: State, thing: Thing) -> Thing | None:
    """What code outside torch returns for a tensor of a shard: a value of this process."""
    return state.local(thing) if isinstance(thing, Origin) and thing.role in SHARES else None


def relate(call: EvaluatedCall, origin: Origin) -> None:
    """Note what an optimizer optimizes and what a scheduler schedules."""
    if origin.role in (Role.OPTIMIZER, Role.SCHEDULER):
        call.state.related[origin] = call.everything


def escape(state: State, thing: Thing, call: cst.Call) -> None:
    """Note a function that a call hands to code outside the program."""
    if isinstance(thing, Function):
        state.escape(thing.node, call)
    elif isinstance(thing, Bound) and isinstance(thing.receiver, (Origin, Instance)):
        receiver = thing.receiver
        klass = state.klass.get(receiver) if isinstance(receiver, Origin) else receiver.klass
        method = klass.method(thing.name) if klass else None
        if method is not None:
            state.escape(method.node, call)


def takes(function: FunctionNode, call: cst.Call, *, bound: bool = False) -> bool:
    """Whether a function can be called with the arguments of a call; ``bound``: its first parameter is given."""
    if any(arg.star for arg in call.args) or isinstance(function.params.star_arg, cst.Param):
        return True
    places = positional(function)[bound:]
    plain = [arg for arg in call.args if arg.keyword is None]
    given = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    known = {param.name.value for param in parameters(function)}
    asked = [*places[len(plain) :], *function.params.kwonly_params]
    wanting = [p for p in asked if p.default is None and p.name.value not in given]
    return len(plain) <= len(places) and not wanting and (given <= known or function.params.star_kwarg is not None)


def argument_of(site: cst.Call, param: cst.Param, index: int) -> cst.Arg | None:
    """The argument of a call that fills a parameter; None where a star or a default fills it."""
    for position, arg in enumerate(site.args):
        if arg.star:
            return None
        if arg.keyword is not None:
            if arg.keyword.value == param.name.value:
                return arg
        elif position == index:
            return arg
    return None


def argument_for(
    unit: Unit, function: cst.FunctionDef | cst.Lambda, param: cst.Param, site: CallRecord
) -> cst.BaseExpression | None:
    """The argument of a call for a parameter; None if the call uses the default, or if stars hide it."""
    for arg in site.node.args:
        if arg.keyword is not None and arg.keyword.value == param.name.value:
            return arg.value
    places = positional(function)
    plain = [arg for arg in site.node.args if arg.keyword is None]
    if param not in places or any(arg.star for arg in plain):
        return None
    scope = unit.names.within.get(function)
    method = scope is not None and isinstance(scope.node, cst.ClassDef)
    index = places.index(param) - (1 if method and "staticmethod" not in decorators(function) else 0)
    if index < 0 or method_name(site.node) in ("spawn", "start_processes"):
        return None
    return plain[index].value if index < len(plain) else None
