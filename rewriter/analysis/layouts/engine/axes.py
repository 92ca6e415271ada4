"""Where the rows are after an operation whose dimensions are named in a text: ``"b (h w) c -> b c h w"``."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

import libcst as cst

from .layout import Layout, Partial, Shard, Unclear

_REST = "..."
_TOKENS = re.compile(r"\(|\)|\.\.\.|\w+")
Axes = list[list[str]]
"""For each dimension the names that it is made of, the outer one first; none for a dimension of size one."""


def pattern(node: cst.CSTNode | None) -> tuple[Axes, Axes] | None:
    """The dimensions before and after, as a text that is written out names them."""
    text = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    if not isinstance(text, str) or text.count("->") != 1:
        return None
    before, after = map(_axes, text.split("->"))
    return before, after


def _axes(text: str) -> Axes:
    found: Axes = []
    inside = False
    for token in _TOKENS.findall(text):
        if token in "()":
            inside = token == "("
            found += [[]] if inside else []
            continue
        names = [token] if token != "1" else []
        if inside:
            found[-1] += names
        else:
            found.append(names)
    return found


def moved(
    rows: Shard, before: Axes, after: Axes, sizes: Collection[str], operation: str | None, node: cst.CSTNode
) -> Layout:
    """
    The layout of a tensor with rows.

    Args:
        rows: the tensor.
        before: its dimensions.
        after: those of the result.
        sizes: the names whose sizes are given.
        operation: what dimensions that are left out go into: ``mean``, ``sum``; None where none are, or it is unknown.
        node: for the reason.
    """
    name = _name_of_rows(rows, before, sizes)
    if not name:
        return Unclear("which of its named dimensions has the rows cannot be told", node)
    place = next((n for n, names in enumerate(after) if name in names), None)
    if place is None:
        if operation in ("mean", "sum"):
            return Partial("mean" if operation == "mean" else "sum", rows.uneven, rows.host)
        return Unclear("it is a figure of the whole batch that is neither a mean nor a sum", node, joint=True)
    within = after[place].index(name)
    hidden = rows.rank - len(before) + 1 if rows.rank is not None else None  # how many dimensions the dots stand for
    begun = after.index([_REST]) if [_REST] in after else len(after)
    if (place > begun and hidden is None) or (name == _REST and after[place] != [_REST]):
        return Unclear("how many dimensions the dots stand for is not known", node)
    dim = place + (hidden - 1 if place > begun and hidden is not None else 0)
    if name == _REST:
        dim += rows.dim - before.index([_REST])
    rank = len(after) if begun == len(after) else (len(after) - 1 + hidden if hidden is not None else None)
    return replace(rows, dim=dim, rank=rank, least=0, merged=rows.merged or within > 0)


def _name_of_rows(rows: Shard, before: Axes, sizes: Collection[str]) -> str:
    """The name of the dimension along which the rows are; empty if it cannot be told."""
    dots = before.index([_REST]) if [_REST] in before else None
    place = rows.dim
    if dots is not None and rows.dim >= dots:
        if rows.rank is None:
            return ""
        place = max(rows.dim - rows.rank + len(before), dots)
    elif dots is None and rows.rank not in (None, len(before)):
        return ""
    if place >= len(before) or not before[place]:
        return ""
    names = before[place]
    split = len(names) > 1 and (rows.merged or names[0] in sizes)
    return "" if split else names[0]
