"""Code that an object brings along: its own methods, and those of what it was made of; whoever has it may call them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.roles import Origin
from ..syntax.nodes import positional
from ..syntax.walk import nodes_in
from .solver import Slot, Thing
from .values import Bound, Function, Instance, Klass, Mapping, Sequence, State, Unknown

_CALLED = ("__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "forward")
"""The methods by which a data set, a transform or a module is used."""


def held_code(state: State, value: cst.BaseExpression) -> Iterator[Function]:
    """
    The functions that using an object may run: those of its class, and those of the objects in its attributes, of the
    items of a container, of the arguments of an outside call that made it (``Compose([Noise()])``).
    """
    fields: dict[Thing, list[Slot]] = {}
    for thing, slot in state.fields():
        fields.setdefault(thing, []).append(slot)
    held = state.values.get(value)
    pending, seen = [held] if held is not None else [], set[Thing]()
    while pending:
        for thing in [thing for thing in pending.pop().things if thing not in seen]:
            seen.add(thing)
            pending += _parts(state, thing)
            klass = thing.klass if isinstance(thing, Instance) else state.klass.get(thing)
            if isinstance(klass, Klass):
                pending += fields.get(thing, ())
                yield from _methods(klass, _CALLED)
            if isinstance(thing, Function):
                yield thing
            if isinstance(thing, Bound):
                receiver = thing.receiver
                pending += fields.get(receiver, ())
                klass = receiver.klass if isinstance(receiver, Instance) else state.klass.get(receiver)
                yield from _methods(klass, (thing.name,)) if isinstance(klass, Klass) else ()


def _methods(klass: Klass, names: Iterable[str]) -> Iterator[Function]:
    """Some methods of a class, and those that they read from their object: where nothing in the program calls the first
    ones, what they call is not known otherwise."""
    pending, seen = list(names), set[str]()
    while pending:
        name = pending.pop()
        method = klass.method(name) if name not in seen else None
        seen.add(name)
        if method is not None:
            yield method
            own = next((param.name.value for param in positional(method.node)), "")
            reads = nodes_in(method.node, cst.Attribute)
            pending += [n.attr.value for n in reads if isinstance(n.value, cst.Name) and n.value.value == own]


def _parts(state: State, thing: Thing) -> list[Slot]:
    """What is in a container, or was given to the outside call that made something."""
    if isinstance(thing, Sequence):
        return [*thing.items, thing.rest, *thing.wraps]
    if isinstance(thing, Mapping):
        return [*thing.entries.values(), thing.rest]
    made = thing.node if isinstance(thing, (Unknown, Origin)) else None
    arguments = made.args if isinstance(made, cst.Call) else ()
    return [slot for argument in arguments if (slot := state.values.get(argument.value)) is not None]
