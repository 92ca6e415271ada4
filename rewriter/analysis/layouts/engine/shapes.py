"""Where the rows are after a tensor got another shape, was indexed, or was multiplied with another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from ....facts.torch_api.kinds.tensors import Reshape
from ...syntax.nodes import dotted
from .layout import (
    CHOSEN,
    REPLICATED,
    Each,
    Layout,
    Made,
    Mixed,
    Partial,
    Replicated,
    Several,
    Shard,
    ShardRow,
    ShardSize,
    Unclear,
    Whole,
    WholeCount,
    inner,
)


def integer(node: cst.CSTNode | None) -> int | None:
    """The whole number that is written out."""
    if isinstance(node, cst.Integer):
        return node.evaluated_value
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        number = integer(node.expression)
        return -number if number is not None else None
    return None


def integers(nodes: Sequence[cst.CSTNode]) -> list[int | None]:
    """The whole numbers that are written out, of several arguments or of one tuple."""
    if len(nodes) == 1 and isinstance(nodes[0], (cst.Tuple, cst.List)):
        nodes = [element.value for element in nodes[0].elements]
    return [integer(node) for node in nodes]


def position(rows: Shard, dim: int) -> int:
    """A dimension counted from the front; one that is counted from the back of an unknown rank comes after the rows."""
    if dim >= 0:
        return dim
    return rows.rank + dim if rows.rank is not None else rows.dim + 1_000 + dim


def reshaped(
    rows: Shard, how: Reshape, arguments: Sequence[cst.CSTNode], sizes: Sequence[Layout], node: cst.Call
) -> Layout:
    """
    The layout of a tensor with rows after an operation on its shape.

    Args:
        rows: the tensor.
        how: the operation.
        arguments: those from the position of the dimension or the shape on.
        sizes: their layouts.
        node: the call, for the reason.
    """
    numbers = integers(arguments)
    if how.how in ("view", "expand", "repeat"):
        if len(arguments) == 1 and len(sizes) == 1 and isinstance(sizes[0], Several):
            sizes = sizes[0].items
        return _viewed(rows, how.how, numbers, sizes, node)
    first = numbers[0] if numbers else None
    if how.how == "flatten":
        start = 0 if first is None and not arguments else first
        if start is None or (start and position(rows, start) <= rows.dim):
            return Unclear("it is flattened over the dimension of the rows", node)
        return replace(rows, rank=start + 1 if len(arguments) == 1 else None, least=0) if start else _flat(rows)
    if how.how == "squeeze":
        if first is None:
            return rows if rows.dim == 0 else Unclear("which dimensions are left out is not written", node)
        place = position(rows, first)
        if place == rows.dim:
            return rows if rows.dim == 0 else Unclear("the dimension of the rows is left out", node)
        return _without(rows, place)
    if how.how == "unsqueeze":
        if first is None:
            return Unclear("where a dimension is put in is not written", node)
        place = first if first >= 0 else (rows.rank + 1 + first if rows.rank is not None else rows.dim + 1)
        return replace(rows, dim=rows.dim + (place <= rows.dim), rank=_changed(rows.rank, 1), spread=True)
    ordered = len(numbers) > 2 or (len(arguments) == 1 and len(numbers) > 1)  # of an array: `x.transpose((0, 3, 1, 2))`
    if how.how == "transpose" and not ordered:
        return _transposed(rows, (0, 1) if not arguments else tuple(numbers), node)
    if how.how in ("permute", "transpose"):
        if None in numbers:
            return Unclear("the order of the dimensions is not written", node)
        order = [position(rows, number) for number in numbers if number is not None]
        return replace(rows, dim=order.index(rows.dim), rank=len(order)) if rows.dim in order else _lost(node)
    if how.how == "interleave":  # each entry several times, one after another: rows stay the outer ones
        return rows if first is not None else _lost(node)
    if first is not None and position(rows, first) == rows.dim:
        return Unclear("it cuts or turns the batch along its rows", node)
    if how.how == "split":
        return Each(replace(rows, rank=None)) if first is not None or rows.dim else _lost(node)
    if how.how == "select":
        return replace(_without(rows, position(rows, first)), long=False) if first is not None else _lost(node)
    return rows if first is not None or how.how != "narrow" else _lost(node)


def _without(rows: Shard, place: int) -> Shard:
    """Rows with another dimension left out."""
    dim, least = rows.dim - (place < rows.dim), max(rows.least - 1, 0)
    return replace(rows, dim=dim, rank=_changed(rows.rank, -1), least=least)


def shaped_as(rows: Shard | Replicated, other: Shard, how: Reshape, node: cst.CSTNode) -> Layout:
    """``target.view_as(guess)``, ``places.expand_as(guess)``: rows, or a value for each, in the shape of others."""
    if isinstance(rows, Replicated):
        repeats = how.how == "expand" and not other.merged
        return Shard(other.dim, other.rank, other.least) if repeats else _lost(node)
    if rows.merged or other.merged or rows.dim != other.dim:
        return _lost(node)
    return replace(rows, rank=other.rank, least=other.least)


def _viewed(rows: Shard, how: str, numbers: Sequence[int | None], sizes: Sequence[Layout], node: cst.Call) -> Layout:
    counts = [place for place, size in enumerate(sizes) if isinstance(size, ShardSize)]
    if how in ("repeat", "expand"):
        dim = rows.dim + (len(numbers) - rows.rank if rows.rank is not None else 0)  # new dimensions come first
        number = numbers[dim] if 0 <= dim < len(numbers) else None
        if how == "expand":
            kept = counts == [dim] or number == -1
            return replace(rows, dim=dim, rank=len(numbers)) if kept else _lost(node)
        if counts or dim >= len(numbers) or len(numbers) != len(sizes):
            return _lost(node)
        if rows.rank is None:
            return replace(rows, rank=None) if number == 1 else _lost(node)
        whole = number == 1 or dim < 0  # else as often as is written, each time all the rows
        return replace(rows, dim=max(dim, rows.dim), rank=max(rows.rank, len(numbers)), merged=rows.merged or not whole)
    if -1 in numbers and {-1, 1}.issuperset(numbers) and numbers.count(-1) == 1:
        return replace(_flat(rows), dim=numbers.index(-1), rank=len(numbers), spread=True)
    rank = len(sizes) if sizes else None
    if len(counts) == 1:
        place = counts[0]
        if rows.dim == 0 and not rows.merged and place == 0:
            return replace(rows, rank=rank, least=0)
        if rows.merged and place == 1:
            return replace(rows, dim=1, rank=rank, least=0, merged=False)
        if rows.merged and place == 0:
            return replace(rows, dim=0, rank=rank, least=0)
        if rows.dim and place in (0, rows.dim):
            return replace(rows, dim=place, rank=rank, least=0, merged=place == 0)
        return _lost(node)
    if not counts and numbers and numbers[0] == -1:
        return replace(rows, dim=0, rank=rank, least=0, merged=rows.merged or rows.dim > 0)
    if not counts and rows.dim > 0 and numbers and -1 in numbers and numbers.index(-1) == rows.dim:
        return replace(rows, rank=rank, least=0)
    reason = "its new shape names the size of the whole batch, or none that tells where the rows are"
    named = next((size for size in sizes if isinstance(size, WholeCount)), None) if not counts else None
    made = Whole(node, named.node) if named is not None else None
    return Unclear(reason, node, made, fixed=bool(sizes) and -1 not in numbers)


def _flat(rows: Shard) -> Shard:
    return replace(rows, dim=0, rank=1, least=0, merged=rows.merged or rows.dim > 0)


def reordered(node: cst.CSTNode) -> Unclear:
    """Rows meet others that lie at a stride, or several of them are in one."""
    return Unclear(
        "it joins rows in different orders, as an earlier view or reshape has merged another dimension with that of "
        "the rows on one side",
        node,
        remedy="put the rows first before that view or reshape: x.transpose(0, 1).reshape(...)",
    )


def _changed(rank: int | None, by: int) -> int | None:
    return rank + by if rank is not None else None


def _lost(node: cst.CSTNode) -> Unclear:
    return Unclear("where the rows are after it cannot be told", node)


def _transposed(rows: Shard, pair: tuple[int | None, ...], node: cst.CSTNode) -> Layout:
    if len(pair) != 2 or pair[0] is None or pair[1] is None:
        return _lost(node)
    one, other = (position(rows, place) for place in (pair[0], pair[1]))
    if rows.dim not in (one, other):
        return rows
    moved = other if rows.dim == one else one
    return replace(rows, dim=moved) if moved < 100 else _lost(node)


def transposed(rows: Shard, node: cst.CSTNode) -> Layout:
    """``x.T``: of a matrix, or of an array, which may have more dimensions."""
    if rows.rank not in (None, 2):
        return _lost(node)
    return _transposed(rows if rows.host is not False else replace(rows, rank=2, least=0), (0, 1), node)


def indexed(value: Layout, index: Sequence[cst.BaseSlice], layouts: Sequence[Layout], node: cst.Subscript) -> Layout:
    """
    What an index takes from a value.

    Args:
        value: what is indexed.
        index: the elements of the index.
        layouts: of what each element names; of slices that are plain, replicated.
        node: for the reason.
    """
    if isinstance(value, Unclear) and value.ranked:
        return cut(value, not _takes_all(index[0]))
    for layout in layouts:
        if isinstance(layout, (Unclear, Mixed)):
            return layout if isinstance(layout, Unclear) else _lost(node)
    chosen = [layout for layout in layouts if isinstance(inner(layout), (Shard, ShardRow))]
    if isinstance(value, (Several, Each)) and not (chosen and isinstance(inner(value), Replicated)):
        place = integer(index[0].value) if len(index) == 1 and isinstance(index[0], cst.Index) else None
        if isinstance(value, Several) and place is not None and -len(value.items) <= place < len(value.items):
            return value.items[place]
        return inner(value) if isinstance(index[0], cst.Index) else Each(inner(value))
    if isinstance(inner(value), Replicated):
        if not chosen:
            return REPLICATED
        found = inner(chosen[0])
        if isinstance(found, ShardRow):
            return found
        place = next(i for i, layout in enumerate(layouts) if isinstance(inner(layout), Shard))
        if isinstance(found, Shard) and found.mask:
            return _unfit(found, index[place], node)
        plain = isinstance(found, Shard) and found.dim == 0 and all(isinstance(p, cst.Slice) for p in index[:place])
        return _chosen_of(Shard(place), found) if plain and isinstance(found, Shard) else _lost(node)
    if isinstance(value, Shard):
        return _of_rows(value, index, layouts, node)
    if isinstance(value, ShardRow):
        return value
    if isinstance(value, (Partial, Unclear)):
        return value
    if isinstance(value, Whole):  # of a state with several layers that of one
        held = _of_rows(Shard(value.dim), index, layouts, node) if value.dim is not None else None
        return replace(value, dim=held.dim) if isinstance(held, Shard) else replace(_lost(node), whole=value)
    return _lost(node)


def cut(layout: Layout, some: bool) -> Layout:
    """What is taken of a value by place: of rows in the order of their size the largest, or the smallest."""
    ranked = some and isinstance(layout, Unclear) and layout.ranked
    return replace(layout, ranked="some") if isinstance(layout, Unclear) and ranked else layout


def _unfit(mask: Shard, part: cst.BaseSlice, node: cst.CSTNode) -> Unclear:
    """What a shard of a mask takes from what all processes have as a whole."""
    name = dotted(part.value) if isinstance(part, cst.Index) else ""
    spelled = f"`{name}`" if name else "this index"
    if mask.chosen:
        return Unclear(f"{spelled} holds places among this process's rows, and takes others from what is whole", node)
    places = f", as in {name} = {name}.nonzero().squeeze(1) before the loop" if name else ""
    return Unclear(
        f"{spelled} is a mask, and says of each row of the whole whether it is chosen: a shard of it does not fit",
        node,
        remedy=f"choose by the places of the rows{places}: then each process trains on its shard of the chosen rows. "
        "Or keep it on one device",
    )


def _of_rows(rows: Shard, index: Sequence[cst.BaseSlice], layouts: Sequence[Layout], node: cst.Subscript) -> Layout:
    mask = inner(layouts[0])
    if len(index) == 1 and isinstance(mask, Shard) and mask.mask and mask.dim == rows.dim:
        return Shard(0, merged=rows.merged, uneven=rows.uneven or CHOSEN, chosen=True)
    place, dim, rank = 0, rows.dim, rows.rank
    for part, layout in zip(index, layouts, strict=True):
        value = part.value if isinstance(part, cst.Index) else None
        if isinstance(value, cst.Ellipsis):
            return replace(rows, dim=dim, rank=None, least=0)  # what follows counts from the back
        if isinstance(value, cst.Name) and value.value == "None":
            dim, rank, rows = dim + (place <= dim), _changed(rank, 1), replace(rows, spread=True)
            place += 1
            continue
        if place == dim:
            if isinstance(layout, ShardRow) and len(index) == 1:
                return ShardRow()
            number = integer(value) if value is not None and len(index) == 1 else None
            if number is not None and rows.assumed:  # what a model gave has parts then: `outputs[0]`
                return Unclear(f"what `{dotted(node.value) or '...'}[{number}]` is cannot be told", node)
            if number is not None and rows.mask and rows.chosen:
                return Unclear("whether it takes places by an array or by a tensor cannot be told", node)
            if value is not None or not _takes_all(part):
                found, pair = inner(layout), len(index) == 2
                return (
                    _chosen_of(Shard(0, 1), found)
                    if pair and isinstance(found, Shard)
                    else Unclear("it chooses rows by their place in the batch", node, picked=isinstance(found, Shard))
                )
        elif place < dim and value is not None:
            dim, rank, place = dim - 1, _changed(rank, -1), place - 1
        elif value is not None and integer(value) is not None:
            rank, place = _changed(rank, -1), place - 1
        elif value is not None:
            rank = None
        place += 1
    long = rows.long and not any(isinstance(part, cst.Index) and integer(part.value) is not None for part in index)
    return replace(rows, dim=dim, rank=rank if len(index) <= (rows.rank or 0) else None, least=0, long=long)


def _chosen_of(rows: Shard, index: Shard) -> Shard:
    """What an index takes: where it is a mask, or has chosen rows itself, some of the rows."""
    return replace(rows, chosen=True, uneven=index.uneven or CHOSEN) if index.mask or index.chosen else rows


def _takes_all(part: cst.BaseSlice) -> bool:
    return isinstance(part, cst.Slice) and part.lower is None and part.upper is None and part.step is None


def product(left: Layout, right: Layout, batched: bool, node: cst.CSTNode) -> Layout:
    """The layout of a product of two tensors, of which at least one has rows."""
    lost = next((one for one in (left, right) if isinstance(one, Unclear)), None)
    if lost is not None:
        return lost
    if isinstance(left, Shard) and isinstance(right, Shard):
        if left.merged != right.merged:
            return reordered(node)
        known = (left.rank or 0) > 2 or (right.rank or 0) > 2
        if left.dim == right.dim and (batched or (known and left.dim == 0)):
            return replace(left if left.rank is not None else right, long=False)
        if _sums_over_rows(left, right, batched):
            return Partial("sum", left.uneven or right.uneven)
        across = left.dim == 0 < right.dim and not (batched or known)
        reason = "it multiplies each row with each other row, or sums over the rows"
        return Unclear(reason, node, joint=True, paired=across)
    if isinstance(left, Shard) and isinstance(right, Replicated):
        if left.dim and left.rank is not None and left.dim >= left.rank - 1:
            return _lost(node)
        matrix = isinstance(right, Made) and len(right.sizes) > 1
        least = max((left.rank or left.least) - 1, left.dim + 1)
        return left if matrix else replace(left, rank=None, least=least)  # a vector takes the last dimension away
    if isinstance(right, Shard) and isinstance(left, Replicated):
        return right if (right.rank or 0) > 2 and right.dim == 0 else _lost(node)
    return Unclear("a product of tensors, for one of which it is not known which dimension holds the rows", node)


def _sums_over_rows(left: Shard, right: Shard, batched: bool) -> bool:
    """Whether the rows are what a product multiplies and adds up: ``x @ x`` of vectors, ``x.T @ y``. Rows that are last
    on the left and first on the right fit together in no other way."""
    if left.rank and right.rank:
        return left.dim == left.rank - 1 and right.dim == max(right.rank - 2, 0)
    last = left.dim == left.rank - 1 if left.rank else left.dim > 0
    return last and right.dim == 0 and (right.rank or 0) <= 2 and not batched
