"""The layout of what the rows of a batch are reduced to: a figure, a loss, what a batch has beside its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import libcst as cst

from ....facts.reasons import called
from ....facts.torch_api.kinds import tensors
from ...dataflow.callees import method_name
from ...syntax.nodes import keyword
from .arguments import Arguments
from .layout import (
    CHOSEN,
    REPLICATED,
    Layout,
    Partial,
    Replicated,
    Several,
    Shape,
    Shard,
    ShardRow,
    ShardSize,
    Unclear,
    Whole,
    inner,
    mapped,
    settled,
    varies,
)
from .pointwise import pointwise
from .shapes import integer, position


def _without_rank(layout: Layout) -> Layout:
    return replace(layout, rank=None) if isinstance(layout, Shard) else layout


def open_dimension(asked: cst.BaseExpression | None, given: Arguments) -> Unclear:
    """What is said where only a run knows the dimension, perhaps that of the rows."""
    named = f" (`{cst.Module([]).code_for_node(asked)}`)" if asked is not None else ""
    why = f"only a run knows along which dimension `{called(given.node)}` goes{named}, perhaps over the rows"
    return Unclear(why, given.node)


def after_reduction(operand: Layout, transfer: tensors.Reduce, given: Arguments) -> Layout:
    if isinstance(operand, (Replicated, Whole, ShardRow, ShardSize, Shape)):
        return operand if not isinstance(operand, Shape) else ShardSize()
    asked = given.dimension(transfer.dim, transfer.keyword)
    if isinstance(asked, cst.Name) and asked.value == "None":
        asked = None
    if isinstance(operand, Unclear):
        operand, whole = replace(operand, compared=False), asked is None and not operand.near and not operand.bent
        return replace(operand, near=transfer.op) if whole and transfer.op in ("sum", "mean") else operand
    if isinstance(operand, Partial):
        return operand if transfer.op in ("sum", "mean") else _nonlinear(given)
    if not isinstance(operand, Shard):
        return settled(operand, given.node) if varies(operand) else REPLICATED
    if asked is not None:
        nodes = [e.value for e in asked.elements] if isinstance(asked, (cst.Tuple, cst.List)) else [asked]
        numbers = [number for node in nodes if (number := given.number(node)) is not None]
        if len(numbers) < len(nodes):
            return open_dimension(asked, given)
        kept = _beside(operand, numbers, keepdim=keyword(given.node, "keepdim") is not None)
        if kept is not None:
            pair = transfer.gives == "value and index"
            return Several((kept, kept)) if pair else kept
    if transfer.op in ("sum", "mean"):
        return figure("sum" if transfer.op == "sum" else "mean", operand)
    if transfer.op == "count":
        return Partial("sum", host=operand.host)
    found = replace(_nonlinear(given), figure=transfer.op == "non-linear")
    found = replace(found, ranked="some") if method_name(given.node) in _RANKS else found
    euclidean = asked is None and method_name(given.node) == "norm" and _is_euclidean(given)
    return replace(found, squared=figure("sum", operand)) if euclidean else found


_RANKS = frozenset("kthvalue median nanmedian quantile nanquantile percentile".split())
"""What gives a value by its place in the order of all: rows that are compared with it are the largest, or smallest."""


def _is_euclidean(given: Arguments) -> bool:
    """``x.norm()``, ``x.norm(2)``, ``torch.norm(x, p=2)``: the root of the sum of squares."""
    order = keyword(given.node, "p", 0 if given.base is not None else 1) or keyword(given.node, "ord")
    return order is None or integer(order) == 2


def figure(op: Literal["mean", "sum"], rows: Shard) -> Partial:
    """The mean or the sum of a shard. The sum of chosen rows is a term of the sum of all that are chosen."""
    return Partial(op, "" if op == "sum" and rows.uneven == CHOSEN else rows.uneven, rows.host)


def _nonlinear(given: Arguments) -> Unclear:
    return Unclear("it is a figure of the whole batch that is neither a mean nor a sum", given.node, joint=True)


def _beside(rows: Shard, numbers: Sequence[int], keepdim: bool) -> Shard | None:
    """The layout after a reduction along other dimensions than that of the rows; None where that is among them."""
    places = {position(rows, number) for number in numbers}
    if rows.dim in places:
        return None
    if keepdim:
        return replace(rows, long=False)
    rank = rows.rank - len(places) if rows.rank is not None else None
    dim = rows.dim - len([place for place in places if place < rows.dim])
    return replace(rows, dim=dim, rank=rank, least=0, long=False, assumed=None)


_REDUCTIONS: Mapping[str, Literal["mean", "sum"]] = {"mean": "mean", "batchmean": "mean", "sum": "sum"}


def losses(layouts: Iterable[Layout], reduced: str, classes: bool, node: cst.CSTNode) -> Layout:
    """
    The layout of a loss of rows.

    Args:
        layouts: of what is compared.
        reduced: the reduction.
        classes: targets have another shape than what is compared with them.
        node: the call, for the reason.
    """
    held = [mapped(one, _without_rank) if classes else one for one in layouts]
    pair = [inner(one) for one in held[:2]]
    if any(isinstance(one, Shard) for one in pair) and any(one == REPLICATED for one in pair):
        return Unclear("it compares this process's rows with what is the same on all processes", node)
    found = pointwise(held, node)
    if isinstance(found, Unclear) and reduced in _REDUCTIONS:
        return replace(found, near=_REDUCTIONS[reduced])
    if not isinstance(found, Shard) or reduced == "none":
        return replace(found, assumed=None, flat=classes) if isinstance(found, Shard) else found
    if reduced in _REDUCTIONS:
        return figure(_REDUCTIONS[reduced], found)
    return Unclear("which reduction this loss has is not written out", node)
