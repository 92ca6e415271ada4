"""Facts of a program that distributes itself by hand: what takes the place of each piece of it."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst


@dataclass(frozen=True)
class Instead:
    """What takes the place of one piece of distribution by hand."""

    node: cst.CSTNode
    """An expression, a small statement, a whole statement, a parameter, or a call that is given more keywords."""
    text: str
    """Source text, in which ``{}`` stands for the accelerator; empty where the piece goes."""
    because: str
    keywords: tuple[tuple[str, str], ...] = ()
    """Keyword arguments that the call is given; the rest of it stays."""
    needed: bool = False
    """The accelerator is brought to where it stands, if that can be done."""
    breaks: bool = True
    """A call that becomes long may be broken into lines: it stands in one line now, as all of its statement does."""
