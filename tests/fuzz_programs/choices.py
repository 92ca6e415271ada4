"""What a program of the grammar was chosen to be: one option for each slot that it asked for."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """
    Draws an option for each slot, and keeps what was drawn. A slot is drawn by itself: a new one changes no other.

    Args:
        seed: of the draws.
        fixed: the options of slots that are not drawn; with ``simplest`` all other slots take their first option.
    """

    def __init__(self, seed: int = 0, fixed: Mapping[str, str] | None = None, simplest: bool = False) -> None:
        self.taken: dict[str, str] = {}
        self._seed = seed
        self._fixed = dict(fixed or {})
        self._simplest = simplest

    def pick(self, slot: str, options: Mapping[str, T]) -> T:
        """One of the options: the simplest comes first, and is drawn as often as two others."""
        return options[self.word(slot, list(options))]

    def word(self, slot: str, options: Sequence[str]) -> str:
        """The name of one of the options."""
        drawn = options[max(0, random.Random(f"{self._seed} {slot}").randrange(-1, len(options)))]
        name = self._fixed.get(slot, options[0] if self._simplest else drawn)
        if name not in options:  # another choice has made this one impossible
            name = options[0]
        self.taken[slot] = name
        return name
