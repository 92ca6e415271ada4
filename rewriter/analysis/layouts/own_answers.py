"""
What each process finds out by itself: the time, the memory of its device, whether there is a file, that a signal came.

A file that is asked for between the steps of a training may appear at any moment: one process sees it a step before
another. What is asked for before the training is there for all of them, or for none.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from ...facts.torch_api import surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.solver import Slot
from ..dataflow.values import Bound, CallRecord, Function, Instance, Unit
from ..syntax.walk import nodes_in
from ..training.training import Training
from .writes import Writes, WrittenValue


class OwnAnswers:
    """Answers for one program."""

    def __init__(self, reach: Reach, training: Training) -> None:
        self._state, self._reach = reach.state, reach
        self._steps = frozenset(record.node for record in training.steps)

    @cached_property
    def any(self) -> bool:
        """Whether the program asks for something of this kind at all."""
        calls = self._state.calls.values()
        return bool(self._handlers) or any(surroundings.is_per_process(outside_name(r)) or _asks_file(r) for r in calls)

    def is_asked_apart(self, record: CallRecord) -> bool:
        """Whether a call gives each process an answer of its own."""
        if surroundings.is_per_process(outside_name(record)):
            return True
        return _asks_file(record) and self._is_between_steps(record.node, record.unit)

    def kept_in(self, node: cst.Attribute, writes: Writes, *, conditions: bool) -> Iterator[cst.CSTNode]:
        """Where an object of the program keeps such an answer in an attribute, or gives it by a property: a timer, what
        waits for a signal. ``conditions``: also where it is set under a condition that asks."""
        held = self._state.values.get(node.value)
        for thing in held.things if held is not None else ():
            for klass in thing.klass.lineage() if isinstance(thing, Instance) and thing.klass is not None else ():
                for write in writes.of((klass.node, node.attr.value)):
                    around = write.unit.names.enclosing(write.node, cst.If) if conditions else ()
                    tests = (a.test for a in around if isinstance(a, cst.If))
                    if self.on_signal(write) or any(map(self._asks, (write.node, *tests))):
                        yield write.node
                method = klass.method(node.attr.value)
                if method is not None and method.decorated("property"):
                    given = method.unit.names.returns.get(method.node, ())
                    yield from (r.value for r in given if r.value is not None and self._asks(r.value))

    def _asks(self, value: cst.CSTNode) -> bool:
        calls = nodes_in(value, cst.Call)
        records = (self._state.calls[call] for call in calls if call in self._state.calls)
        return any(map(self.is_asked_apart, records))

    def on_signal(self, write: WrittenValue) -> bool:
        """Whether the handler of a signal sets something: each process gets its signals at a moment of its own."""
        return bool(self._handlers) and write.unit.names.function(write.node) in self._handlers

    @cached_property
    def _handlers(self) -> frozenset[cst.CSTNode]:
        calls = (call for call, r in self._state.calls.items() if surroundings.interrupts(outside_name(r)))
        given = (self._state.values.get(arg.value) for call in calls for arg in call.args)
        return frozenset(function.node for slot in given for function in functions_in(slot))

    def _is_between_steps(self, node: cst.CSTNode, unit: Unit) -> bool:
        """Whether a node runs in the turns of a loop that trains, seen through its function's callers."""
        seen: set[cst.CSTNode] = set()
        pending = [(node, unit)]
        while pending:
            at, home = pending.pop()
            if any(not self._steps.isdisjoint(self._reach.runs_in(loop)) for loop in self._reach.loops(at, home)):
                return True
            code = home.names.function(at)
            if code not in seen:
                seen.add(code)
                pending += ((record.node, record.unit) for record in self._reach.reached_sites(code))
        return False


def own_answers(reach: Reach, training: Training) -> OwnAnswers:
    """What each process finds out by itself: one for all that ask."""
    return reach.state.once((OwnAnswers, training), lambda: OwnAnswers(reach, training))


def _asks_file(record: CallRecord) -> bool:
    name, method = outside_name(record), method_name(record.node)
    return surroundings.asks_existence(name) or (not name and method in surroundings.path_methods("existence"))


def functions_in(slot: Slot | None) -> Iterator[Function]:
    """The functions of the program that a value may be, methods among them."""
    for thing in slot.things if slot is not None else ():
        klass = thing.receiver.klass if isinstance(thing, Bound) and isinstance(thing.receiver, Instance) else None
        method = klass.method(thing.name) if klass is not None and isinstance(thing, Bound) else None
        function = thing if isinstance(thing, Function) else method
        if function is not None:
            yield function
