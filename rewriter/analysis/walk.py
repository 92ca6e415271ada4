"""The children of a node that carry meaning: no white space, no punctuation. Fields are looked up once a class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import libcst as cst

_PUNCTUATION = frozenset(
    "lpar rpar comma semicolon leading_lines lines_after_decorators header footer newline indent equal colon "
    "lbracket rbracket star operator_ dot from_ asname_ default_indent trailing_whitespace leading_whitespace".split()
)
_FIELDS: dict[type[cst.CSTNode], tuple[str, ...]] = {}


def _meaningful(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    found = _FIELDS.get(kind)
    if found is None:
        names = [f.name for f in fields(kind)]
        found = tuple(n for n in names if "whitespace" not in n and n not in _PUNCTUATION)
        _FIELDS[kind] = found
    return found


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The child nodes of a node in source order of their fields, white space and punctuation left out."""
    for name in _meaningful(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, (tuple, list)):
            for item in value:
                if isinstance(item, cst.CSTNode):
                    yield item


def descendants(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and everything below it, in source order."""
    yield node
    for child in children(node):
        yield from descendants(child)
