"""
Which rows each process gets: plain arithmetic on lists of indices.

A *script batch* is what the script's own batch sampler yields. A *round* is what all processes see at one step.
Everything here is computed alike on every process, so that each knows what the others hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from operator import add
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shares:
    """
    How the rows of one step lie on the processes.

    `rows[r]` rows are handed to rank r; the first `valid[r]` of them belong to it, the rest are duplicates.
    `weights[r]` is what a mean over the rows of rank r must be multiplied by, before averaging over the ranks.
    `cut` says that they are the rows of one script batch; otherwise every rank that has valid rows has a script batch.
    """

    rows: tuple[int, ...]
    valid: tuple[int, ...]
    weights: tuple[float, ...]
    cut: bool = False

    @property
    def exact(self) -> bool:
        """No row is a duplicate."""
        return self.rows == self.valid

    def part_of_means(self, rank: int) -> float:
        """What a mean over the rows of a rank counts in the sum of the means of the script batches."""
        if self.cut:
            return self.weights[rank] / len(self.weights)
        return 1.0 if self.valid[rank] else 0.0


class History:
    """The `Shares` of the batches of a pass, with running totals: to add one costs the same however many there are."""

    def __init__(self) -> None:
        self._runs: list[tuple[Shares, int]] = []
        self.totals: tuple[int, ...] = ()
        """Rows that each process has been handed."""
        self.batches = 0
        """How many batches there are."""

    def add(self, shares: Shares) -> None:
        """Another batch has gone out."""
        if self._runs and self._runs[-1][0] == shares:
            self._runs[-1] = shares, self._runs[-1][1] + 1
        else:
            self._runs.append((shares, 1))
        self.batches += 1
        self.totals = tuple(map(add, self.totals, shares.rows)) if self.totals else shares.rows

    def __iter__(self) -> Iterator[Shares]:
        for shares, count in self._runs:
            yield from repeat(shares, count)


@dataclass(frozen=True)
class ShardPlan:
    """What is certain about all batches of a pass before it begins."""

    even: bool = True
    """Every process has equally many rows of each, or the weight of a loss does not depend on them."""
    full: bool = True
    """Every process has a row of each, or the weight of a loss does not depend on it."""
    key: tuple[int, ...] | None = None
    """Passes with the same key have the same shards at the same positions; None where that is not certain."""


EVEN = ShardPlan()


def uniform(rows: int, size: int) -> Shares:
    """Every process has `rows` rows of its own."""
    return Shares((rows,) * size, (rows,) * size, (1.0,) * size)


def weighted(rows: tuple[int, ...], valid: tuple[int, ...], *, cut: bool = False) -> Shares:
    """Shares whose weights make the average over ranks the mean over all rows that are no duplicates."""
    total = sum(valid)
    size = len(rows)
    return Shares(rows, valid, tuple(count * size / total if total else 1.0 for count in valid), cut)


def bounds(count: int, size: int) -> list[tuple[int, int]]:
    """Cut `count` rows into `size` runs; they differ by at most one row, the longer ones come first."""
    base, more = divmod(count, size)
    starts = [rank * base + min(rank, more) for rank in range(size + 1)]
    return list(pairwise(starts))


def split_rows(count: int, size: int) -> tuple[list[tuple[int, int]], Shares]:
    """
    Share the `count` rows of one script batch among `size` processes: where those of each begin and end.

    A process without a row of its own gets the first row as a duplicate, with weight 0.
    """
    runs = bounds(count, size)
    valid = tuple(end - start for start, end in runs)
    handed = [(start, end) if end > start else (0, 1) for start, end in runs]
    return handed, weighted(tuple(max(rows, 1) for rows in valid), valid, cut=True)


def split_one(batch: list[T], size: int) -> tuple[list[list[T]], Shares]:
    """
    Share one script batch among `size` processes.

    A process without a row of its own gets the first row as a duplicate, with weight 0, so that its loss is a number.
    """
    parts = [batch[start:end] for start, end in bounds(len(batch), size)]
    valid = tuple(len(part) for part in parts)
    parts = [part or batch[:1] for part in parts]
    return parts, weighted(tuple(len(part) for part in parts), valid, cut=True)


@dataclass(frozen=True)
class RoundRules:
    """How rounds are made of script batches, one for each process."""

    size: int
    batch_size: int | None
    drop_last: bool
    even: bool


def rounds(batches: Iterable[list[Any]], rules: RoundRules) -> Iterator[tuple[list[list[Any]], Shares]]:
    """
    Hand script batches to the processes in turn, a round at a time.

    A batch is a step of the script: whatever its rows are, it counts like the others of its round. The last round
    may be short. With `even`, it is completed with rows from the start of the pass, whatever `drop_last` says: that
    leaves out rows that do not fill a batch of the script, and these do. Without, processes for which there is no batch
    get an empty one, and their pass is over; with `drop_last`, the round is left out then. Batches of no fixed size are
    never completed row by row: a process without a batch gets the first one of the round, weight 0.
    """
    waiting: list[list[Any]] = []
    first_rows: list[Any] = []
    fixed = rules.batch_size
    for seen, batch in enumerate(batches):
        if len(waiting) == rules.size:  # a short batch was not the last one: these batches have no fixed size
            yield waiting, _own(waiting)
            waiting = []
        if seen < rules.size and fixed is not None:
            first_rows.extend(batch)
        waiting.append(list(batch))
        if len(waiting) == rules.size and (fixed is None or len(batch) == fixed):
            yield waiting, _own(waiting)
            waiting = []
    if not waiting or (rules.drop_last and not rules.even):
        return
    if not rules.even:
        waiting += [[] for _ in range(rules.size - len(waiting))]
        yield waiting, _own(waiting)
    elif fixed is None:
        valid = tuple(len(batch) for batch in waiting) + (0,) * (rules.size - len(waiting))
        weights = tuple(rules.size / len(waiting) if rows else 0.0 for rows in valid)
        waiting += [list(waiting[0]) for _ in range(rules.size - len(waiting))]
        yield waiting, Shares(tuple(len(batch) for batch in waiting), valid, weights)
    else:
        yield _complete(waiting, first_rows, rules.size, fixed)


def _own(parts: list[list[Any]]) -> Shares:
    rows = tuple(len(part) for part in parts)
    return Shares(rows, rows, (1.0,) * len(rows))


def _complete(waiting: list[list[Any]], first_rows: list[Any], size: int, fixed: int) -> tuple[list[list[Any]], Shares]:
    valid = tuple(len(batch) for batch in waiting) + (0,) * (size - len(waiting))
    filler = iter(_cycle(first_rows))
    parts = [*waiting, *([] for _ in range(size - len(waiting)))]
    parts = [part + [next(filler) for _ in range(fixed - len(part))] for part in parts]
    return parts, Shares((fixed,) * size, valid, (1.0,) * size)


def _cycle(rows: list[T]) -> Iterator[T]:
    while True:
        yield from rows


def count_rounds(script_batches: int, rules: RoundRules, rank: int) -> int:
    """How many batches rank `rank` gets of the `script_batches` that the script's sampler yields."""
    whole, rest = divmod(script_batches, rules.size)
    if rules.even:
        return whole + (1 if rest else 0)
    if rules.drop_last:
        return whole
    return whole + (1 if rank < rest else 0)
