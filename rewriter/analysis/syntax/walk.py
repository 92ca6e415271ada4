"""The children of a node that carry meaning: no white space, no punctuation. Fields are looked up once a class."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import fields
from typing import TypeVar, overload

import libcst as cst

_PUNCTUATION = frozenset(
    "lpar rpar comma semicolon leading_lines lines_after_decorators header footer newline indent equal colon "
    "lbracket rbracket star operator_ dot from_ asname_ default_indent trailing_whitespace leading_whitespace".split()
)
_LEAVES = frozenset({str, bool, type(None), cst.MaybeSentinel})
"""What a field may hold beside a node and a sequence of nodes. (Asking whether something is a node is slow: LibCST's
classes are abstract ones, and Python code answers for them.)"""
_FIELDS: dict[type[cst.CSTNode], tuple[str, ...]] = {}
_FITTING: dict[tuple[type[cst.CSTNode], ...], dict[type[cst.CSTNode], bool]] = {}
"""For kinds that were asked for, which classes are of one of them."""

One = TypeVar("One", bound=cst.CSTNode)
Two = TypeVar("Two", bound=cst.CSTNode)
Three = TypeVar("Three", bound=cst.CSTNode)
Four = TypeVar("Four", bound=cst.CSTNode)


def _meaningful(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    names = [f.name for f in fields(kind)]
    _FIELDS[kind] = tuple(n for n in names if "whitespace" not in n and n not in _PUNCTUATION)
    return _FIELDS[kind]


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The child nodes of a node in source order of their fields, white space and punctuation left out."""
    found: list[cst.CSTNode] = []
    names = _FIELDS.get(node.__class__)
    for name in _meaningful(node.__class__) if names is None else names:  # an operator has none
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


@overload
def nodes_in(node: cst.CSTNode, one: type[One], /) -> Iterator[One]: ...
@overload
def nodes_in(node: cst.CSTNode, one: type[One], two: type[Two], /) -> Iterator[One | Two]: ...
@overload
def nodes_in(
    node: cst.CSTNode, one: type[One], two: type[Two], three: type[Three], /
) -> Iterator[One | Two | Three]: ...
@overload
def nodes_in(
    node: cst.CSTNode, one: type[One], two: type[Two], three: type[Three], four: type[Four], /
) -> Iterator[One | Two | Three | Four]: ...
def nodes_in(node: cst.CSTNode, /, *kinds: type[cst.CSTNode]) -> Iterator[cst.CSTNode]:
    """A node and everything below it, as far as it is of one of some kinds, in source order."""
    fitting = _FITTING.setdefault(kinds, {})
    for found in descendants(node):
        kind = found.__class__
        fits = fitting.get(kind)
        if fits is None:
            fits = fitting[kind] = issubclass(kind, kinds)
        if fits:
            yield found


def contains(node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> bool:
    """Whether a node, or something below it, is of one of some kinds."""
    return any(issubclass(found.__class__, kinds) for found in descendants(node))
