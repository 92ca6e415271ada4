"""A violation: an invariant that the emitted program must keep, and breaks."""

from __future__ import annotations

from typing import NamedTuple

from ..analysis.dataflow.code_place import CodePlace


class Violation(NamedTuple):
    """One broken invariant, with the place that breaks it and the place that it conflicts with."""

    invariant: str
    """Its name, one word or two: ``prepared-together``."""
    place: CodePlace
    words: str
    """What is wrong, as a clause that names both places."""
    other: CodePlace | None = None
    same_by_words: bool = False
    """An edit may change the code of the place, as it adds an argument to a call; the words stay."""

    @property
    def key(self) -> tuple[str, tuple[str, str, str]]:
        """Equal for the same violation in another text of the program."""
        module, function, code = self.place.key
        return self.invariant, (module, function, self.words if self.same_by_words else code)
