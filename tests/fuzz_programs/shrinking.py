"""From a program with a defect to the simplest one with the same defect."""

from __future__ import annotations

from collections.abc import Mapping

from .choices import Choices
from .judging import Judge, Judged
from .program import program


def simplest(taken: Mapping[str, str], judged: Judged, judge: Judge) -> tuple[dict[str, str], Judged]:
    """
    Put the first option into one slot after the other, as long as the defect stays.

    Args:
        taken: the choices of the program.
        judged: its verdict.
        judge: judges a text.

    Returns:
        The choices that are left, without those that are the first of their slot, and their verdict.
    """
    kept = dict(taken)
    # all at once first: most slots have nothing to do with it
    size = len(kept)
    while size:
        names = list(kept)
        for first in range(0, len(names), size):
            tried = {name: option for name, option in kept.items() if name not in names[first : first + size]}
            if tried == kept:
                continue
            found = judge(program(Choices(fixed=tried, simplest=True)))
            if (found.kind, found.signature) == (judged.kind, judged.signature):
                kept, judged = tried, found
        size //= 2
    return kept, judged
