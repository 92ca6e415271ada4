"""
Reasons: what was found, as data. The modules of this folder hold one class for each kind of finding.

A reason holds the place, the values and the names that a sentence about it needs. The sentence is in ``wording``. Why
an edit is made is a short phrase, which is put together here.
"""

from __future__ import annotations

from typing import Protocol

import libcst as cst


class Reason(Protocol):
    """What the analysis has found at one place of the source."""

    @property
    def node(self) -> cst.CSTNode | None:
        """The place, or None for the file as a whole."""


_LONGEST = 100
"""Of a longer piece of code the sentence says "this"."""


def called(node: cst.CSTNode) -> str:
    """A call in short, without its arguments: ``os.popen(...)``."""
    named = node.func if isinstance(node, cst.Call) else node
    return cst.Module([]).code_for_node(named).strip() + ("(...)" if isinstance(node, cst.Call) else "")


def about(because: str, *things: str | cst.CSTNode) -> str:
    """A reason in which ``{}`` stands for what it is about: each thing as the script writes it."""
    if "{}" not in because:
        return because
    texts = [thing if isinstance(thing, str) else cst.Module([]).code_for_node(thing).strip() for thing in things]
    named = ", ".join(f"`{text}`" for text in dict.fromkeys(texts) if text)
    short = named and len(named) <= _LONGEST and "\n" not in named
    return because.replace("{}", named if short else "this")
