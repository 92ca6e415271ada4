"""Facts about a program that distributes itself by hand: the replacement of each piece of it."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst


@dataclass(frozen=True)
class Instead:
    """The replacement of one piece of distribution by hand."""

    node: cst.CSTNode
    """An expression, a small statement, a whole statement, a parameter, or a call that is given more keywords."""
    text: str
    """Source text, in which ``{}`` stands for the accelerator; empty if the piece is removed."""
    because: str
    keywords: tuple[tuple[str, str], ...] = ()
    """Keyword arguments that the call gets; the rest of it stays."""
    needed: bool = False
    """The function that contains it gets the accelerator, if possible."""
    breaks: bool = True
    """A call that becomes long may be broken into lines, because its whole statement is on one line now."""


PLAIN_KEYS = (
    'the keys of this checkpoint no longer begin with the wrapper\'s prefix "module."',
    'what loads a new file must expect plain keys: load it before the model is wrapped, and cut no "module." off; '
    "remove the prefix from the keys of older files",
)
"""What is said of a checkpoint of a wrapper that is removed, and what to do."""
