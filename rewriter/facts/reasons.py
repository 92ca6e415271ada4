"""Reasons as sentences: why an edit is made, with the user's own names in it."""

from __future__ import annotations

import libcst as cst

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
