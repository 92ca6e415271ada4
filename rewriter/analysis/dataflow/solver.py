"""
The fixed point: things flow along edges from slot to slot until nothing new arrives anywhere.

A slot is a place that can hold things (a variable, an expression's value, an attribute, a return value). What the
program means is stated once as edges and watchers; the solver only moves things. A thing is moved at most once along
each edge, so the work is bounded by edges times things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Thing = object
Filter = Callable[[Thing], "Thing | None"]


@dataclass(eq=False)
class Slot:
    """A place that holds things."""

    things: dict[Thing, None] = field(default_factory=dict)
    edges: list[tuple[Slot, Filter | None]] = field(default_factory=list)
    watchers: list[Callable[[Thing], None]] = field(default_factory=list)


class TooComplex(Exception):
    """The program moves more things about than can be followed in reasonable time."""


class Solver:
    """Moves things along edges and calls watchers, to a fixed point."""

    LIMIT = 3_000_000
    """Deliveries after which a program is given up: some thirty times what a 10,000-line program needs."""

    def __init__(self) -> None:
        self._pending: list[tuple[Slot, Thing]] = []
        self._delivered = 0

    def add(self, slot: Slot, thing: Thing) -> None:
        """Put a thing into a slot."""
        if thing not in slot.things:
            slot.things[thing] = None
            self._pending.append((slot, thing))

    def flow(self, source: Slot, target: Slot, through: Filter | None = None) -> None:
        """Whatever ``source`` holds, now or later, ``target`` holds too; ``through`` may change a thing or stop it."""
        if source is target and through is None:
            return
        source.edges.append((target, through))
        for thing in list(source.things):
            self._pass(target, through, thing)

    def watch(self, slot: Slot, watcher: Callable[[Thing], None]) -> None:
        """Call ``watcher`` once for each thing that is in the slot or arrives in it."""
        seen: set[Thing] = set()

        def once(thing: Thing) -> None:
            if thing not in seen:
                seen.add(thing)
                watcher(thing)

        slot.watchers.append(once)
        for thing in list(slot.things):
            once(thing)

    def run(self) -> None:
        """Work until nothing moves."""
        while self._pending:
            slot, thing = self._pending.pop()
            self._delivered += 1
            if self._delivered > self.LIMIT:
                raise TooComplex
            # Edges and watchers that are added meanwhile see the thing through flow() and watch().
            for target, through in tuple(slot.edges):
                self._pass(target, through, thing)
            for watcher in tuple(slot.watchers):
                watcher(thing)

    def _pass(self, target: Slot, through: Filter | None, thing: Thing) -> None:
        passed = thing if through is None else through(thing)
        if passed is not None:
            self.add(target, passed)


def union(solver: Solver, slots: Iterable[Slot]) -> Slot:
    """A new slot that holds what any of the given ones holds."""
    result = Slot()
    for slot in slots:
        solver.flow(slot, result)
    return result
