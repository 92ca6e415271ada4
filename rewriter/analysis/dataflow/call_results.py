"""What one call of a function gives of what the function returns: a loader that it makes is another one each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cached_property

import libcst as cst

from ...facts.roles import Origin, Role
from ..syntax.nodes import FunctionNode, parameters
from .solver import Slot, Thing
from .values import Function, Sequence, State

PassOn = Callable[[Slot, Slot], None]
"""Lets a slot of one call hold what a slot of the function does, as far as this call gives it."""


class CallResults:
    """Answers for one program while it is solved."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._memo: dict[Hashable, Thing] = {}
        self._called = Counter(_called(call) for unit in state.units.values() for call in unit.names.calls)

    def of(self, function: Function, call: cst.Call, thing: Thing, pass_on: PassOn) -> Thing:
        """
        What one call of a function gives, where the function returns ``thing``.

        A loader that the function creates, itself or by a function that it alone calls, is another one for each call of
        it. One that it was handed, or found, is the same for all calls. Of a tuple, ``return model, optimizer``, each
        element is what this call gives of it.
        """
        if isinstance(thing, Sequence):
            return self._tuple_of(function, call, thing, pass_on)
        if not isinstance(thing, Origin) or thing.role is not Role.LOADER or isinstance(function.node, cst.Lambda):
            return thing
        if self._called[function.node.name.value] < 2 or not self._creates(function, thing):
            return thing
        key = ("given", thing.node, call)
        return self._memo.setdefault(key, replace(thing, site=call))

    def _tuple_of(self, function: Function, call: cst.Call, thing: Sequence, pass_on: PassOn) -> Sequence:
        """What one call gives of a tuple that a function returns: ``return data_set, loader``."""
        node = function.node
        if isinstance(node, cst.Lambda) or self._called[node.name.value] < 2:
            return thing
        given = [value for r in function.unit.names.returns.get(node, ()) if isinstance(value := r.value, cst.Tuple)]
        if node.name.value not in self._loading and not any(_has_parameter(node, value) for value in given):
            return thing
        if not any(thing in self._state.slot(value).things for value in given):
            return thing
        key = ("given", thing, call)
        copy = self._memo.get(key)
        if copy is None:
            copy = self._memo[key] = Sequence()
            slots = [*((item, Slot()) for item in thing.items), (thing.rest, copy.rest)]
            copy.items.extend(new for _, new in slots[:-1])
            for old, new in slots:
                pass_on(old, new)
        assert isinstance(copy, Sequence)
        return copy

    @cached_property
    def _loading(self) -> frozenset[str]:
        """The names of the functions that may make a loader, themselves or by functions of such names."""
        below: dict[str, set[str]] = {}
        for unit in self._state.units.values():
            for call in unit.names.calls:
                around = unit.names.function(call)
                if isinstance(around, cst.FunctionDef):
                    below.setdefault(around.name.value, set()).add(_called(call))
        found = {name for name, called in below.items() if any(word.endswith("Loader") for word in called)}
        while more := {name for name, called in below.items() if name not in found and not found.isdisjoint(called)}:
            found |= more
        return frozenset(found)

    def _creates(self, function: Function, thing: Origin) -> bool:
        place = thing.place
        while True:
            unit = next((u for u in self._state.units.values() if place in u.names.parents), None)
            creator = unit.names.function(place) if unit is not None else None
            if not isinstance(creator, cst.FunctionDef):
                return False
            if creator is function.node:
                return True
            sites = self._state.sites.get(creator, {})
            if self._called[creator.name.value] != 1 or len(sites) != 1:
                return False
            place = next(iter(sites))


def _has_parameter(function: FunctionNode, given: cst.Tuple) -> bool:
    """Whether an element of what a function returns is a parameter of it."""
    names = {param.name.value for param in parameters(function)}
    return any(isinstance(each.value, cst.Name) and each.value.value in names for each in given.elements)


def _called(call: cst.Call) -> str:
    """The last name of what is called."""
    word = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return word.value if isinstance(word, cst.Name) else ""


def call_results(state: State) -> CallResults:
    """Those of a program: one for all that ask."""
    return state.once(CallResults, lambda: CallResults(state))
