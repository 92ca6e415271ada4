"""What containers hold: elements by iteration, by position and by key."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from ...facts.container_methods import adds
from ...facts.roles import SHARES, Origin, Role
from ...facts.torch_api import surroundings
from ..syntax.nodes import positional
from ..syntax.walk import nodes_in
from .solver import Slot, Thing
from .trails import Trace, Trail
from .values import External, Function, Instance, Klass, Mapping, Sequence, State, Unknown

_CONTAINERS = frozenset({"torch.nn.ModuleList", "torch.nn.Sequential"})
_BY_NAME = frozenset({"torch.nn.ModuleDict", "torch.nn.Sequential"})


def element(state: State, source: Slot) -> Slot:
    """What iterating the things in a slot gives."""
    result = Slot()

    def arrive(thing: Thing) -> None:
        if isinstance(thing, Origin):
            if thing.role is Role.LOADER:
                state.solver.add(result, batch(state, thing))
            elif thing.role in SHARES or thing.role is Role.PARAMETERS:
                state.solver.add(result, thing)
            else:
                layers(state, thing, result)
        elif isinstance(thing, Sequence):
            elements(state, thing, result)
        elif isinstance(thing, Instance):
            _handed_out(state, thing, result)
        elif isinstance(thing, Trace) and thing.trail is Trail.LISTING:
            state.solver.add(result, state.trace(thing.node, Trail.ENTRY))
        elif draws(thing):
            state.solver.add(result, thing)

    state.solver.watch(source, arrive)
    return result


def draws(thing: Thing) -> bool:
    """Whether something draws, and so does each of its parts: a figure with its axes, ``fig, (a, b) = subplots(2)``."""
    return isinstance(thing, Unknown) and surroundings.pictures(thing.qualified)


def elements(state: State, sequence: Sequence, result: Slot) -> None:
    """All that a sequence holds flows to a slot."""
    for item in sequence.items:
        state.solver.flow(item, result)
    state.solver.flow(sequence.rest, result)


def _handed_out(state: State, thing: Instance, result: Slot) -> None:
    """What an iterator of the program hands out."""
    for name in ("__next__", "__iter__"):
        method = thing.klass.method(name)
        if method is not None:
            bind_self(state, thing, method)
            given = state.returns(method.node)
            state.solver.flow(given if name == "__next__" else element(state, given), result)
            return


def bind_self(state: State, thing: Thing, method: Function) -> None:
    """Let the first parameter of a method hold its object, where no call is written out: properties, iterators."""
    places = positional(method.node)
    if places:
        own = method.unit.names.scopes[method.node].bindings[places[0].name.value]
        state.solver.add(state.binding(own), thing)


def layers(state: State, container: Origin, result: Slot) -> None:
    """The layers in ``nn.ModuleList([...])`` and ``nn.Sequential(...)``, and those that are put in later."""
    if container.qualified in _CONTAINERS and isinstance(container.node, cst.Call):
        held = Slot()
        for arg in container.node.args:
            state.solver.flow(members(state, state.slot(arg.value)), held)
        state.solver.flow(state.field(container, "[]"), held)
        state.solver.flow(held, result)
        state.solver.watch(held, lambda layer: note_part(state, container, layer))


def named_layers(state: State, container: Origin, name: str | None, result: Slot) -> None:
    """The layer of a name in ``nn.ModuleDict({...})`` and ``nn.Sequential(OrderedDict(...))``, and those that are put
    in later; without a name: all of them."""
    if container.qualified not in _BY_NAME or not isinstance(container.node, cst.Call):
        return
    held = Slot()

    def arrive(thing: Thing) -> None:
        if isinstance(thing, Mapping):
            for slot in (thing.values,) if name is None else (state.entry(thing, name), thing.rest):
                state.solver.flow(slot, held)

    for arg in container.node.args:
        state.solver.watch(state.slot(arg.value), arrive)
    state.solver.flow(state.field(container, "[]"), held)
    state.solver.flow(held, result)
    state.solver.watch(held, lambda layer: note_part(state, container, layer))


def is_by_name(thing: Thing) -> bool:
    """Whether something is ``nn.ModuleDict``, which has the methods of a dict."""
    return isinstance(thing, Origin) and thing.qualified == "torch.nn.ModuleDict"


def note_part(state: State, whole: Origin, part: Thing) -> None:
    """Note that a model has another one, or a loss module, as a part."""
    if isinstance(part, Origin) and part.role in (Role.MODEL, Role.CRITERION) and part is not whole:
        state.parts.setdefault(whole, {})[part] = None
        state.wholes.setdefault(part, {})[whole] = None


def put_in(state: State, container: Origin, layer: Slot) -> None:
    """``layers.append(layer)``, ``layers.extend([...])``, ``layers["head"] = layer``."""
    if container.qualified in _CONTAINERS or is_by_name(container):
        state.solver.flow(members(state, layer), state.field(container, "[]"))


def batch(state: State, loader: Origin) -> Origin:
    """The role of what a loader yields."""
    return state.origin(Role.BATCH, loader.node, "yielded by a data loader", "", loader)


def at(state: State, source: Slot, position: int) -> Slot:
    """What is at one position of the things in a slot."""
    result = Slot()

    def arrive(thing: Thing) -> None:
        if isinstance(thing, Origin) and (thing.role in SHARES or thing.role is Role.PARAMETERS):
            state.solver.add(result, thing)
        elif isinstance(thing, Origin):
            layers(state, thing, result)
        elif isinstance(thing, Sequence):
            at_position(state, thing, position, result)
        elif draws(thing):
            state.solver.add(result, thing)

    state.solver.watch(source, arrive)
    return result


def at_position(state: State, sequence: Sequence, position: int, result: Slot) -> None:
    """What a sequence holds at one position flows to a slot."""
    if -len(sequence.items) <= position < len(sequence.items):
        state.solver.flow(sequence.items[position], result)
    state.solver.flow(sequence.rest, result)


def members(state: State, source: Slot) -> Slot:
    """The things themselves and all that containers among them hold, however deep."""
    result = Slot()
    entered: set[Thing] = set()

    def arrive(thing: Thing) -> None:
        if isinstance(thing, (Sequence, Mapping)):
            if thing in entered:
                return
            entered.add(thing)
            for slot in (*thing.items, thing.rest) if isinstance(thing, Sequence) else (thing.values,):
                state.solver.watch(slot, arrive)
        else:
            state.solver.add(result, thing)

    state.solver.watch(source, arrive)
    return result


def merge(state: State, mapping: Mapping, other: Thing) -> None:
    """Let a dict hold all that another holds."""
    if isinstance(other, Mapping):
        for key, slot in list(other.entries.items()):
            state.solver.flow(slot, state.entry(mapping, key))
        state.solver.flow(other.rest, mapping.rest)


def key_of(node: cst.CSTNode | None) -> str | None:
    """The constant string that a key expression is, or None."""
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        return value if isinstance(value, str) else None
    return None


def collects(state: State, call: cst.Call, by: Callable[[str], bool] = adds) -> bool:
    """Whether a call puts something into an object, by such a method. A module is none: ``torch.add(x, y)``; nor is an
    object of the script whose own method of that name keeps nothing: ``loss = self.update(x, y)``."""
    if not isinstance(call.func, cst.Attribute) or not by(name := call.func.attr.value):
        return False
    held = state.values.get(call.func.value)
    things = held.things if held is not None else {}
    if any(isinstance(thing, (External, Klass, Function)) for thing in things):
        return False
    klasses = [state.class_of(thing) for thing in things]
    return not klasses or any(klass is None or _keeps(klass, name, frozenset()) for klass in klasses)


_COMPUTES = (cst.BinaryOperation, cst.UnaryOperation, cst.BooleanOperation, cst.Comparison, cst.ComparisonTarget)


def _keeps(klass: Klass, name: str, seen: frozenset[str]) -> bool:
    """Whether a method may change its object: it does more with it than call what the object has, and compute with
    it. An attribute that is called, ``self.net(x)``, is a layer."""
    method = klass.method(name)
    if method is None or name in seen or method.decorated("staticmethod"):
        return method is None and not seen
    parents = method.unit.names.parents
    first = next((param.name.value for param in positional(method.node)), "")
    for node in nodes_in(method.node.body, cst.Name):
        above = parents.get(node)  # None for the name of an attribute
        if node.value != first or above is None:
            continue
        outer = parents.get(above)
        if not isinstance(above, cst.Attribute):
            return True
        if isinstance(outer, cst.Call) and outer.func is above:
            if _keeps(klass, above.attr.value, seen | {name}):
                return True
        elif not isinstance(outer, _COMPUTES):
            return True
    return False
