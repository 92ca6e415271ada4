"""Whether two pieces of code are the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import libcst as cst

_SPACE = frozenset(
    "lpar rpar comma semicolon leading_lines lines_after_decorators header footer newline indent "
    "trailing_whitespace".split()
)
"""Parentheses, too: what belongs together is in the tree."""


def _itself(node: cst.CSTNode) -> cst.CSTNode:
    return node


def alike(one: cst.CSTNode, other: cst.CSTNode, seen_as: Callable[[cst.CSTNode], cst.CSTNode] = _itself) -> bool:
    """Whether two pieces of code are the same but for white space and comments. ``seen_as``: what a node is compared
    as, ``x`` for ``x.cuda()``."""
    one, other = seen_as(one), seen_as(other)
    if one is other:
        return True
    if one.__class__ is not other.__class__:
        return False
    names = [f.name for f in fields(one) if "whitespace" not in f.name and f.name not in _SPACE]
    return all(_alike(getattr(one, name), getattr(other, name), seen_as) for name in names)


def _alike(one: object, other: object, seen_as: Callable[[cst.CSTNode], cst.CSTNode]) -> bool:
    if isinstance(one, cst.CSTNode) and isinstance(other, cst.CSTNode):
        return alike(one, other, seen_as)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_alike(*pair, seen_as) for pair in zip(one, other, strict=True))
    return one == other
