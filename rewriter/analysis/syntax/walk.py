"""The children of a node that carry meaning: no white space, no punctuation. Fields are looked up once a class."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import fields

import libcst as cst

_PUNCTUATION = frozenset(
    "lpar rpar comma semicolon leading_lines lines_after_decorators header footer newline indent equal colon "
    "lbracket rbracket star operator_ dot from_ asname_ default_indent trailing_whitespace leading_whitespace".split()
)
_LEAVES = frozenset({str, bool, type(None), cst.MaybeSentinel})
"""What a field may hold beside a node and a sequence of nodes. (Asking whether something is a node is slow: LibCST's
classes are abstract ones, and Python code answers for them.)"""
_FIELDS: dict[type[cst.CSTNode], tuple[str, ...]] = {}


def _meaningful(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    names = [f.name for f in fields(kind)]
    _FIELDS[kind] = tuple(n for n in names if "whitespace" not in n and n not in _PUNCTUATION)
    return _FIELDS[kind]


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The child nodes of a node in source order of their fields, white space and punctuation left out."""
    found: list[cst.CSTNode] = []
    for name in _FIELDS.get(node.__class__) or _meaningful(node.__class__):
        value = getattr(node, name)
        kind = value.__class__
        if kind is list or kind is tuple:
            found += value
        elif kind not in _LEAVES:
            found.append(value)
    return found


def descendants(node: cst.CSTNode, closed: Container[type[cst.CSTNode]] = frozenset()) -> Iterator[cst.CSTNode]:
    """A node and everything below it, in source order; what is below nodes of the ``closed`` kinds is left out."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        if node.__class__ not in closed:
            pending += children(node)[::-1]
