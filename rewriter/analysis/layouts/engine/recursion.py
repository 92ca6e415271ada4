"""
Functions that call themselves: ``def to_device(x): return [to_device(y) for y in x] if isinstance(x, list) else ...``.

What such a function gives is what it gives where it does not call itself, if that stays so once it is known what the
calls of itself give. Only what stays so counts, so it does not matter what is taken for granted at first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...dataflow.constant_values import Given
from ...syntax.nodes import FunctionNode
from .layout import NEUTRAL, Layout, join

_TURNS = 3
"""A result that still changes then is not known."""
_FRAMES = 5
"""So many calls of one function may be inside each other, each with other arguments."""


@dataclass(frozen=True)
class CalledWith:
    """A function and what a call gives to it."""

    node: FunctionNode
    plain: tuple[Layout, ...]
    named: Mapping[str, Layout]
    constants: Given


@dataclass
class _Running:
    handed: CalledWith
    result: Layout | None = None
    met: bool = False


@dataclass
class Recursion:
    """The calls that are gone through, the innermost last."""

    running: list[_Running] = field(default_factory=list)
    unanswered: int = 0
    """How often a call of itself was met of which nothing was known yet."""

    def again(self, handed: CalledWith) -> Layout | None:
        """What a call gives that is the same as one that is gone through; None where there is none."""
        for one in self.running:
            if one.handed == handed:
                one.met = True
                self.unanswered += one.result is None
                return one.result if one.result is not None else NEUTRAL
        return None

    def is_too_deep(self, node: FunctionNode) -> bool:
        """Whether a function has called itself too often, each time with other arguments."""
        return sum(one.handed.node is node for one in self.running) >= _FRAMES

    def settled(self, handed: CalledWith, run: Callable[[], Layout | None]) -> Layout | None:
        """What a function gives, run until that stays the same; None where it does not, or only calls itself."""
        one = _Running(handed)
        self.running.append(one)
        found = run()
        for _ in range(_TURNS):
            if not one.met or found is None or found == one.result:
                break
            one.result = found
            more = run()
            found = join(found, more) if more is not None else None
        else:
            found = None
        self.running.pop()
        return found
