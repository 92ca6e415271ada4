"""
Which code a program runs, while it is solved; calls in all other code hand nothing over.

What is never run gives nothing to what is: a file from which a program takes one function may hold another program, and
both may build their optimizers in a third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import libcst as cst


class _Waiting(NamedTuple):
    """A call that hands nothing over yet."""

    function: cst.CSTNode
    start: Callable[[], None]


class RunningCode:
    """The modules of a program, and the functions that they come to."""

    def __init__(self, modules: Iterable[cst.CSTNode]) -> None:
        self._running = set(modules)
        self._waiting: dict[cst.CSTNode, list[_Waiting]] = {}
        """By the code that makes them, calls of which it is not known that they ever run."""
        self._solved = False

    def call(self, caller: cst.CSTNode, function: cst.CSTNode, start: Callable[[], None]) -> None:
        """Start what a call does, as soon as its code runs."""
        if caller in self._running:
            start()
            self.add(function)
        elif self._solved and function not in self._running:
            start()
        else:
            self._waiting.setdefault(caller, []).append(_Waiting(function, start))

    def add(self, code: cst.CSTNode) -> None:
        """Note that the program runs some code, with all calls in it."""
        pending = [code]
        while pending:
            here = pending.pop()
            if here not in self._running:
                self._running.add(here)
                for waiting in self._waiting.pop(here, ()):
                    waiting.start()
                    pending.append(waiting.function)

    def end(self) -> None:
        """All that runs is known: what does not run is followed among itself, so that it can be spoken of."""
        self._solved = True
        for waiting in [each for found in self._waiting.values() for each in found]:
            if waiting.function not in self._running:
                waiting.start()
