"""The layout of what is computed value by value, and why it may not be known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import libcst as cst

from .layout import (
    NEUTRAL,
    NORMALISED,
    REPLICATED,
    Foreign,
    Layout,
    Made,
    Partial,
    Replicated,
    Shape,
    Shard,
    ShardRow,
    ShardSize,
    Unclear,
    Whole,
    inner,
    marked,
    settled,
    varies,
    words_of,
)
from .shapes import reordered


def masking(layout: Layout) -> Layout:
    """What a comparison gives: where it is of rows, it can choose among them."""
    return replace(layout, mask=True) if isinstance(layout, (Shard, Replicated)) else layout


def normalised(layout: Shard | Partial) -> Layout:
    """Rows, or a figure of them, that a sum or a mean over the shard divides: no exact term of that of all rows."""
    uneven = replace(layout, uneven=NORMALISED)
    return uneven if isinstance(uneven, Shard) else replace(uneven, op="mean")


def pointwise(layouts: Iterable[Layout], node: cst.CSTNode, *, linear: bool = False) -> Layout:
    """
    The layout of what is computed value by value.

    Args:
        layouts: of the operands.
        node: the operation, for the reason.
        linear: a mean or a sum goes through it: a factor, a sign, another type.
    """
    held = [settled(inner(layout), node) for layout in layouts]
    mean = averaged(*held) if linear and len(held) == 2 else None
    if mean is not None:
        return mean
    if (lost := unclear(held, node)) is not None:
        return lost if linear or lost.near not in ("mean", "sum") else bent(node)
    shards = [one for one in held if isinstance(one, (Shard, ShardRow, Partial, Shape))]
    whole = next((one for one in held if isinstance(one, Whole)), None)
    if whole is not None:
        reason = "a tensor that is made for the whole batch meets this process's rows"
        return Unclear(reason, node, whole) if shards else whole
    if not shards:
        if any(isinstance(one, ShardSize) for one in held):
            return held[0] if len(held) == 1 else Unclear("it is computed from the number of rows", node, counts=True)
        foreign = next((one for one in held if isinstance(one, Foreign)), REPLICATED)
        return NEUTRAL if held and all(isinstance(one, Replicated) and one.neutral for one in held) else foreign
    if any(isinstance(one, ShardSize) for one in held):
        return Unclear("each value is computed with the number of rows", node)
    if (met := meeting(held, node)) is not None:
        return met
    found: Layout = shards[0]
    for other in shards[1:]:
        found = _together(found, other, node)
    if isinstance(found, Partial) and not linear:
        return bent(node)
    return found


def bent(node: cst.CSTNode, *factors: Partial) -> Unclear:
    """What a mean or a sum over the rows becomes by a function that is not linear: a root, a product with another. A
    factor that is a number has no gradient: it is a weight."""
    reason = "a figure of the whole batch is changed by a function that is not linear"
    tensors = [one for one in factors if one.host is False]
    if len(tensors) < len(factors):
        return Unclear(reason, node, joint=True, near=tensors[0].op if tensors else "")
    return Unclear(reason, node, joint=True, bent=True)


def unclear(held: Sequence[Layout], node: cst.CSTNode) -> Unclear | None:
    """What becomes of operands of which one is not known: the first such, with how the rows went into all of them."""
    first = next((one for one in held if isinstance(one, Unclear)), None)
    if first is None or len(held) == 1:
        return first
    words = words_of(held)
    near = words.pop() if len(words) == 1 else "mixed" if words else ""
    counts = all(isinstance(one, Replicated) or is_count(one) for one in held)
    if first.figure and any(isinstance(one, Shard) for one in held):
        return replace(compared(node), near=near, ranked=first.ranked)
    return replace(first, per_row=False, near=near, counts=counts)


def compared(node: cst.CSTNode) -> Unclear:
    """What rows become that meet a figure of all of them."""
    return Unclear("it compares rows with a figure of their batch", node, joint=True, compared=True)


def paired(node: cst.CSTNode) -> Unclear:
    """What rows become that meet all rows, along another dimension."""
    return Unclear("it joins each row with each other row", node, joint=True, paired=True)


def has_rows(layout: Layout) -> bool:
    """Whether a value has one for each row of a shard, be it beside a figure of their batch."""
    return isinstance(layout, Shard) or (isinstance(layout, Unclear) and layout.compared)


def is_count(layout: Layout) -> bool:
    """Whether a value is the number of rows of this process, or a number that is computed from that."""
    return isinstance(layout, ShardSize) or (isinstance(layout, Unclear) and layout.counts)


def unknown_in(layout: Layout) -> Unclear | None:
    """What is not known of a loss, which is one number: it itself, or the rows that a model was taken to give where its
    code says something else that is not known."""
    if isinstance(layout, Shard):
        return layout.assumed if layout.assumed is not None and layout.assumed.reason else None
    return layout if isinstance(layout, Unclear) else None


def averaged(one: Layout, other: Layout) -> Partial | None:
    """The mean that a sum over the rows gives, times the weight of one row: ``hits.mul(100.0 / len(y))``."""
    for total, weight in ((one, other), (other, one)):
        if isinstance(total, Partial) and total.op == "sum" and isinstance(weight, Unclear) and weight.per_row:
            return replace(total, op="mean")
    return None


def meeting(layouts: Iterable[Layout], node: cst.CSTNode) -> Layout | None:
    """What becomes of values that code which cannot be seen has handed out, in an operation; None without such."""
    held = list(layouts)
    foreign = next((one for one in held if isinstance(one, Foreign)), None)
    if foreign is not None and any(isinstance(one, (Shard, ShardRow)) for one in held):
        return Unclear("it may hold as many rows as the whole batch, and meets this process's rows", node)
    return None if any(map(varies, held)) else foreign


def of_fixed_size(layouts: Iterable[Layout], node: cst.CSTNode, alike: bool) -> Unclear | None:
    """
    What becomes of rows of a batch that is cut, where they meet a tensor that is made with a size of its own.

    Args:
        layouts: of the operands.
        node: the operation, for the reason.
        alike: all operands have as many dimensions; without, only where both numbers are known to be the same.
    """
    held = [inner(layout) for layout in layouts]
    rows = [one for one in held if isinstance(one, Shard) and not one.merged]
    for made in (one for one in held if isinstance(one, Made)):
        for one in rows:
            if len(made.sizes) > one.dim and (alike or one.rank == len(made.sizes)):
                size = made.sizes[one.dim]
                if size is not None and not (isinstance(size, cst.Integer) and size.evaluated_value == 1):
                    return Unclear("a tensor that is made with a size of its own meets this process's rows", node)
    return None


def summed_and_averaged(node: cst.CSTNode) -> Unclear:
    """What a mean and a sum over the rows give together: no common factor makes that of all rows of it."""
    return Unclear("it adds a sum over the rows and a mean over them", node, near="mixed")


def _together(one: Layout, other: Layout, node: cst.CSTNode) -> Layout:
    if isinstance(one, Unclear):
        return one
    if isinstance(one, Shard) and isinstance(other, Shard):
        if one.merged != other.merged:
            return reordered(node)
        if one.rank is not None and other.rank is not None:
            if one.rank - one.dim != other.rank - other.dim:
                return paired(node)
            return marked(one if one.rank >= other.rank else other, one, other)
        if one.dim != other.dim and one.spread and other.spread:
            return paired(node)
        if one.dim != other.dim:
            return Unclear("it joins rows with columns", node, elsewhere=True)
        return marked(replace(one, rank=one.rank or other.rank), one, other)
    if one == other:
        return one
    if isinstance(one, Partial) and isinstance(other, Partial) and one.op == other.op:
        return marked(one, one, other)
    if isinstance(one, Partial) and isinstance(other, Partial):
        return summed_and_averaged(node)
    if {type(one), type(other)} <= {Shard, Partial}:
        return compared(node)
    return Unclear("it joins values of different kinds", node)
