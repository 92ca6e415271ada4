"""
What each of N processes holds of a value, once a batch is cut into shards.

The lattice: a value is the same on all processes, holds this process's rows along a dimension, is one row, the number
of rows, a term of a sum or mean over all rows, or unknown. `Unclear` carries its reason to whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import libcst as cst


@dataclass(frozen=True)
class Layout:
    """What a process holds of a value."""


@dataclass(frozen=True)
class Replicated(Layout):
    """The same value on all processes."""

    neutral: bool = False
    """A number or an empty list written out: where paths meet, the other side decides."""
    mask: bool = field(default=False, compare=False)
    """It is true or false, or holds nothing else: as an index it says of each row whether it is chosen."""


@dataclass(frozen=True)
class WholeCount(Replicated):
    """The number of rows of the whole batch, as the script spells it."""

    node: cst.CSTNode | None = None


@dataclass(frozen=True)
class Foreign(Replicated):
    """What code that cannot be seen hands out: the same on all processes, and perhaps rows of the whole batch."""


@dataclass(frozen=True)
class Absent(Replicated):
    """A parameter that a call leaves at its default, None."""


@dataclass(frozen=True)
class Made(Replicated):
    """A tensor that is made with a shape that says nothing of rows."""

    node: cst.CSTNode | None = None
    sizes: tuple[cst.CSTNode | None, ...] = ()


@dataclass(frozen=True)
class Shard(Layout):
    """This process's rows of a batch, along a dimension."""

    dim: int = 0
    rank: int | None = None
    """How many dimensions the tensor has, where that is known."""
    least: int = 0
    """It has so many dimensions or more."""
    spread: bool = field(default=False, compare=False)
    """A dimension of size one was put in beside that of the rows: what it meets is computed with each of them."""
    merged: bool = False
    """An earlier dimension is merged with that of the rows: rows lie at a stride."""
    mask: bool = False
    """It says of each row whether it is chosen, or where the chosen ones are."""
    uneven: str = ""
    """What each process does by itself, in words, where its mean depends on more than the number of rows."""
    chosen: bool = False
    """It has some of the batch's rows, chosen by what is in them: how many differs between processes."""
    host: bool | None = field(default=False, compare=False)
    """It is no tensor: a number, a list, an array; None where it is one on some path only."""
    flat: bool = field(default=False, compare=False)
    """Where its rank is not known: it may have one value for each row, as the losses of rows that are not reduced."""
    long: bool = field(default=False, compare=False)
    """Another dimension than that of the rows is as long as the longest row of this process's batch."""
    assumed: Unclear | None = field(default=None, compare=False)
    """It is what a model gives for rows, of which no more is known: perhaps one number. Why, and what gives it."""


@dataclass(frozen=True)
class ShardRow(Layout):
    """One row of this process: what a loop over the rows goes through."""


@dataclass(frozen=True)
class ShardSize(Layout):
    """The number of rows of this process, or a multiple of it."""

    chosen: bool = field(default=False, compare=False)
    """Of those that are chosen by what is in them."""


@dataclass(frozen=True)
class Shape(Layout):
    """The shape of a tensor that has rows."""

    of: Shard


@dataclass(frozen=True)
class Partial(Layout):
    """A mean or a sum over this process's rows."""

    op: Literal["mean", "sum"]
    uneven: str = ""
    """What makes the mean of the processes' figures close to that of all rows, and not equal; in words."""
    host: bool | None = field(default=False, compare=False)
    """It is no tensor: a number, an array; None where it is one on some path only."""


CHOSEN = "averages this loss over the entries that are chosen of its own shard"
NORMALISED = "divides this loss by a sum or a mean over its own shard"
LABELLED = "averages this loss over the targets of its own shard that are not -100"
PADDED = "computes this loss from texts that are padded to the longest of its own shard"


@dataclass(frozen=True)
class Whole(Layout):
    """A tensor that is made for the rows of the whole batch, on every process."""

    node: cst.CSTNode
    size: cst.CSTNode | None
    """The expression that says how many rows there are."""
    dim: int | None = field(default=None, compare=False)
    """The dimension that has so many, where that is known."""


@dataclass(frozen=True)
class Several(Layout):
    """A tuple or a list of known length, or an object with so many fields."""

    items: tuple[Layout, ...]
    names: tuple[str, ...] = field(default=(), compare=False)
    """Those of the fields, where it has such: of a named tuple, a data class; the keys of a table that is filled by
    keys that are written out."""


@dataclass(frozen=True)
class Each(Layout):
    """A container of any length whose elements have this layout."""

    element: Layout
    rows: bool = False
    """It holds something of each of several rows: a list that a loop over the rows fills."""
    distinct: bool = False
    """It is a set: what several rows have is in it once."""
    uneven: str = ""
    """Why it has more entries on one process than on another, in words, where not every row gives as many."""
    table: bool = False
    """It is a table that can be cut, and its entries are its attributes, too. Of any other object with attributes it is
    not known whether it can be cut: a graph has nodes and edges."""


@dataclass(frozen=True)
class Unclear(Layout):
    """It cannot be said. The reason is a sentence about the place."""

    reason: str
    node: cst.CSTNode
    whole: Whole | None = None
    """What is made for the whole batch and meets rows, where that is the reason."""
    squared: Partial | None = None
    """What its square is, for the root of a sum of squares."""
    per_row: bool = False
    """It is a number divided by the number of this process's rows: the weight of one of them in a mean."""
    joint: bool = False
    """It is known: several rows go into each value, in another way than as a sum or a mean."""
    paired: bool = False
    """It is computed from each row with each other row."""
    elsewhere: bool = False
    """It has rows, and perhaps not along the first dimension."""
    fixed: bool = False
    """It is computed from rows in a shape that is written out: more rows do not fit in."""
    near: Literal["", "mean", "sum", "mixed"] = ""
    """How the rows went into it in the end, where that is known: it stays as large with more rows, or grows with
    them."""
    bent: bool = False
    """It is a mean or a sum over the rows, changed by a function that is not linear."""
    otherwise: Literal["", "mean", "sum"] = ""
    """What it is on another path of the program, where it is bent on one: one of several losses, by an option."""
    compared: bool = False
    """It has a value for each row, computed from that row and a figure of its batch."""
    counts: bool = False
    """It is computed from the number of rows, and from nothing else that differs."""
    picked: bool = field(default=False, compare=False)
    """It has those of this process's rows that another part of the same batch says: a mask, or places."""
    figure: bool = False
    """It is what all rows make together, but for the largest or the smallest of them: a deviation, a norm, a median."""
    ranked: Literal["", "all", "some"] = ""
    """All rows are put in the order of their size, or some are taken, or weighed, by their place in it."""
    remedy: str = field(default="", compare=False)
    """What can be changed in the script, so that it can be said."""


REPLICATED = Replicated()
NEUTRAL = Replicated(neutral=True)
TRUTH = Replicated(mask=True)


def inner(layout: Layout) -> Layout:
    """What is in a container, as one layout; any other layout itself."""
    if isinstance(layout, Several):
        return join_all(map(inner, layout.items))
    if isinstance(layout, Each):
        return inner(layout.element)
    return layout


def parts(layout: Layout) -> Iterator[Layout]:
    """What a container holds, one by one; any other layout itself."""
    if isinstance(layout, Several):
        for item in layout.items:
            yield from parts(item)
    elif isinstance(layout, Each):
        yield from parts(layout.element)
    else:
        yield layout


def held(layout: Layout) -> Iterator[Layout]:
    """What a value is, or has in it, on any path."""
    for part in parts(layout):
        if isinstance(part, Mixed):
            yield from held(part.one)
            yield from held(part.other)
        else:
            yield part


def is_container(layout: Layout) -> bool:
    """Whether a value is a tuple, a list, a dict on some path."""
    if isinstance(layout, Mixed):
        return is_container(layout.one) or is_container(layout.other)
    return isinstance(layout, (Several, Each))


def holds_rows_apart(layout: Layout) -> bool:
    """Whether a value is a tuple, a list, a dict on some path, and has rows of a shard in it, or what may be some."""
    return is_container(layout) and any(isinstance(one, (Shard, ShardRow, Unclear)) for one in held(layout))


def holds_figure(layout: Layout) -> bool:
    """Whether a value is, or has in it on some path, one number that the rows of a shard were reduced to, or counted
    by."""
    return any(isinstance(one, (Partial, ShardSize)) for one in held(layout))


def reduces(layout: Layout) -> bool:
    """Whether the rows of a shard were reduced in it, on some path: to a figure, or to what is computed from some."""
    return holds_figure(layout) or any(isinstance(one, Unclear) and (one.bent or one.near) for one in held(layout))


def holds_chosen(layout: Layout) -> bool:
    """Whether a value is, or has in it on some path, some of the batch's rows, chosen by what is in them."""
    return any(isinstance(one, Shard) and one.chosen for one in held(layout))


def is_elsewhere(layout: Layout) -> bool:
    """Whether a value is, or has in it on some path, rows along another dimension than the first, or perhaps there."""
    return any(
        one.dim > 0 if isinstance(one, Shard) else isinstance(one, Unclear) and one.elsewhere for one in held(layout)
    )


def is_of_rows(layout: Layout) -> bool:
    """Whether a value is, or has in it on some path, rows of a shard as numbers, or what its rows make together."""
    return any(
        (isinstance(one, Shard) and one.host is True)
        or isinstance(one, (Partial, ShardRow))
        or (isinstance(one, Unclear) and one.joint)
        for one in held(layout)
    )


def is_figure(layout: Layout) -> bool:
    """Whether a value is a tensor with one number that the rows of a shard were reduced to: a loss."""
    return isinstance(layout, Partial) and layout.host is False


def varies(layout: Layout) -> bool:
    """Whether a value can differ between processes."""
    return not isinstance(inner(layout), Replicated)


def join(one: Layout, other: Layout) -> Layout:
    """The layout of a value that comes from one of two paths."""
    if one is other:
        return one
    if isinstance(one, Several) and isinstance(other, Several) and one.names != other.names:
        return beside(one, other)  # tables with different keys
    if one == other:
        return _same(one, other)
    for a, b in ((one, other), (other, one)):
        if isinstance(a, Unclear):
            same = a.near in _words(b) or isinstance(b, Replicated)
            if a.bent and isinstance(b, Partial) and b.host is False and not b.uneven:
                a = replace(a, otherwise=b.op) if b.op in ("mean", "sum") else a
            return a if same or not a.near else replace(a, near="")
        if isinstance(b, Replicated) and b.neutral:
            return a
    if isinstance(one, Several) and isinstance(other, Several) and len(one.items) == len(other.items):
        return Several(tuple(map(join, one.items, other.items)), one.names)
    if isinstance(one, (Several, Each)) and isinstance(other, (Several, Each)):
        return beside(one, other)
    if isinstance(one, Shard) and isinstance(other, Shard) and _place(one) == _place(other):
        return marked(replace(one, rank=None), one, other)
    if isinstance(one, Partial) and isinstance(other, Partial) and one.op == other.op:
        return marked(one, one, other)
    if isinstance(one, Whole) and isinstance(other, Whole):
        return one
    if isinstance(one, Replicated) and isinstance(other, Replicated):
        return one if isinstance(one, (Made, Foreign)) else other
    for a, b in ((one, other), (other, one)):
        if isinstance(a, (Whole, Shard)) and isinstance(b, Made):
            return a  # a state that is made anew before the first batch
        if isinstance(a, Partial) and a.op == "mean" and isinstance(b, Made):
            return a  # the mean of what all processes have is that: `loss = torch.zeros(1)`, and no term by an option
    if not varies(one) and not varies(other):  # a list of graphs, or one
        return join(inner(one), inner(other))
    return Mixed(one, other)


def beside(one: Layout, other: Layout) -> Layout:
    """What a container holds whose elements come of two: a figure among what is unknown is not forgotten."""
    each = [layout for layout in (one, other) if isinstance(layout, Each)]
    rows, distinct = any(layout.rows for layout in each), any(layout.distinct for layout in each)
    uneven = next((layout.uneven for layout in each if layout.uneven), "")
    one, other = inner(one), inner(other)
    unknown = isinstance(one, Unclear) or isinstance(other, Unclear)
    element = Mixed(one, other) if unknown and holds_figure(one) != holds_figure(other) else join(one, other)
    return Each(element, rows, distinct, uneven)


def _same(one: Layout, other: Layout) -> Layout:
    """One of two equal layouts; what is a tensor on one path and a number on the other is neither for certain."""
    if isinstance(one, (Shard, Partial)) and isinstance(other, (Shard, Partial)) and one.host is not other.host:
        return replace(one, host=None)
    if isinstance(one, Replicated) and isinstance(other, Replicated) and one.mask != other.mask:
        return replace(one, mask=False)
    return one


def hosted(layout: Layout) -> Layout:
    """What becomes of a tensor that is read as a number, a list or an array."""
    return mapped(layout, lambda one: replace(one, host=True) if isinstance(one, (Shard, Partial)) else one)


def _place(rows: Shard) -> Shard:
    return replace(rows, rank=None, least=0, mask=False, uneven="", chosen=False)


def marked(found: Layout, one: Layout, other: Layout) -> Layout:
    """A layout that comes of two: a mask only where both are one, and uneven where one of them is."""
    assert isinstance(one, (Shard, Partial)) and isinstance(other, (Shard, Partial))
    uneven = one.uneven or other.uneven
    if isinstance(found, Shard):
        both = isinstance(one, Shard) and isinstance(other, Shard) and one.mask and other.mask
        least = max(getattr(one, "least", 0), getattr(other, "least", 0))
        chosen = holds_chosen(one) or holds_chosen(other)
        long = getattr(one, "long", False) or getattr(other, "long", False)
        return replace(found, mask=both, uneven=uneven, least=least, chosen=chosen, long=long)
    return replace(found, uneven=uneven) if isinstance(found, Partial) else found


def across_rows(layout: Layout) -> bool:
    """Whether what a loop over a value goes through is of one row after another, and not all of the same row."""
    if isinstance(layout, Each):
        return layout.rows
    return isinstance(layout, Shard) and layout.dim == 0


def as_rows(layout: Layout) -> Layout:
    """A list with a value of each row, or of some, as what it is: rows."""
    if isinstance(layout, Each) and layout.rows and isinstance(inner(layout), (ShardRow, Replicated)):
        return Shard(0, uneven=layout.uneven, chosen=layout.uneven == CHOSEN, host=True)
    return layout


def join_all(layouts: Iterable[Layout]) -> Layout:
    """The layout of a value that comes from one of many paths; neutral where there is none."""
    found: Layout = NEUTRAL
    for layout in layouts:
        found = join(found, layout)
    return found


@dataclass(frozen=True)
class Mixed(Layout):
    """Different layouts on different paths: whoever needs one says so, at its own place."""

    one: Layout
    other: Layout


def settled(layout: Layout, node: cst.CSTNode) -> Layout:
    """A layout with which an operation can go on: where paths differ, that is the reason why nothing is known."""
    if isinstance(layout, Mixed):
        whole = next((one for one in (layout.one, layout.other) if isinstance(one, Whole)), None)
        if whole is not None:
            return Unclear("a value that is made for the whole batch meets this process's rows", node, whole)
        words = words_of(held(layout))
        reason = "its rows are in different places on different paths of the program"
        return Unclear(reason, node, near=words.pop() if len(words) == 1 else "")
    return layout


def on_each_path(layout: Layout, change: Callable[[Layout], Layout], node: cst.CSTNode) -> Layout:
    """
    What becomes of a value, asked on each path where paths differ: a list of tensors with rows, and later the tensor
    that they are stacked to, give the same when one is taken out.
    """
    if isinstance(layout, Mixed) and not any(isinstance(one, Whole) for one in (layout.one, layout.other)):
        return join(on_each_path(layout.one, change, node), on_each_path(layout.other, change, node))
    return change(settled(layout, node))


def mapped(layout: Layout, change: Callable[[Layout], Layout]) -> Layout:
    """A layout with a change made to it, or to all that a container holds."""
    if isinstance(layout, Several):
        return Several(tuple(mapped(item, change) for item in layout.items), layout.names)
    if isinstance(layout, Each):
        return replace(layout, element=mapped(layout.element, change))
    return change(layout)


def words_of(layouts: Iterable[Layout]) -> set[Literal["mean", "sum", "mixed"]]:
    """How the rows went into some numbers."""
    return {word for one in layouts for word in _words(one)}


def _words(layout: Layout) -> set[Literal["mean", "sum", "mixed"]]:
    """How the rows went into one number."""
    if isinstance(layout, Unclear):
        return {layout.near} if layout.near else set()
    return {layout.op} if isinstance(layout, Partial) else set()
