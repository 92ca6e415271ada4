"""Which gathered rows are real: duplicates that completed a batch are left out, and the script's order is kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple

import torch

from ..errors import RemainderError
from .progress import Pass, Progress
from .shares import Shares

Segment = tuple[int, int, int]
"""Rows `start` to `end` of what rank `rank` handed in: (rank, start, end)."""
_LOOKED_AT = 3
"""So many times it is looked where rows may come from that fit no batch."""


class Handed(NamedTuple):
    """What all processes have handed in for one place of a tree."""

    sizes: tuple[int, ...]
    """How many rows each rank handed in."""
    kind: Hashable = None
    """Tells it from what else a loop gathers: the type and the further dimensions, for one."""


def real_rows(
    progress: Progress,
    handed: Sequence[Handed],
    tensors: Iterable[torch.Tensor] = (),
    hint: Callable[[tuple[int, ...]], str] = lambda _: "",
) -> list[list[Segment]]:
    """
    The rows to keep, in order, for each of the things that were handed in together.

    It costs the same however many batches there have been, unless rows of all of them were collected.

    Args:
        progress: the passes that the rows may come from.
        handed: alike on every process, and so is the answer.
        tensors: all that were handed in: where one is of a batch in hand, all rows come from that loader.
        hint: what more there is to say about so many rows that fit nothing.

    Raises:
        RemainderError: the batch in hand has duplicates, and the rows fit neither it nor what has been collected.
    """
    candidates = list(progress.candidates())
    known = [one for one in candidates if one.gave(tensors)]
    here = {id(one) for one in candidates if one in known or any(_fits(one, each.sizes) for each in handed)}

    def of(each: Handed) -> list[Segment]:
        if not any(each.sizes):
            return []
        for one in [*known, *candidates]:
            found = _segments(one, each, id(one) in here)
            if found is not None:
                if one not in known:
                    _only_one([*one.beside, *([] if one.runs else progress.running())], each.sizes, found)
                return found
        return _unknown(progress, each.sizes, hint)

    return [of(each) for each in handed]


def _unknown(progress: Progress, sizes: tuple[int, ...], hint: Callable[[tuple[int, ...]], str]) -> list[Segment]:
    shares = progress.latest.shares if progress.latest is not None else None
    if shares is None or shares.exact:
        if progress.unknown_rows < _LOOKED_AT:  # looking costs something
            progress.unknown_rows += 1
            if said := hint(sizes):
                warnings.warn(f"gather_for_metrics: these rows fit no batch of a prepared loader. {said}", stacklevel=5)
        return [(rank, 0, size) for rank, size in enumerate(sizes)]
    if all(valid in (0, rows) for valid, rows in zip(shares.valid, shares.rows, strict=True)):
        return [(rank, 0, size) for rank, size in enumerate(sizes) if shares.valid[rank]]
    raise RemainderError(
        f"gather_for_metrics: the processes hold {list(shares.rows)} rows of the current batch, some of them "
        f"duplicates, but got {list(sizes)} rows, so the duplicates cannot be identified. {hint(sizes)} Pass one row "
        "per row of the batch, or use accelerator.gather for values that are not rows."
    )


def _only_one(others: Iterable[Pass], sizes: tuple[int, ...], found: list[Segment]) -> None:
    """Loaders that hand out batches in turn, or in a step of another loop, must not give different answers."""
    for other in others:
        if other.runs and other.shares is not None and _fits(other, sizes) and _valid(other.shares, 1) != found:
            raise RemainderError(
                f"gather_for_metrics: {list(sizes)} rows match the batches of two loaders, and these have different "
                "duplicates. Pass a tensor of the batch together with its results: "
                "accelerator.gather_for_metrics((output, target))."
            )


def _fits(one: Pass, sizes: tuple[int, ...]) -> bool:
    """One row for each row of the batch in hand."""
    return one.shares is not None and one.shares.rows == sizes


def _segments(one: Pass, each: Handed, here: bool) -> list[Segment] | None:
    """
    The rows to keep if they are of this pass.

    There may be several for each row of the batch in hand, and for each of all rows so far; two batches of one value a
    row look like one batch of two. In the loop it is the batch in hand, where something that was handed in together is
    of it, or the loop has gathered as many values a row before, when nothing else was possible.
    """
    if one.shares is None:
        return None
    times = _times(each.sizes, one.shares.rows)
    collected = _times(each.sizes, one.history.totals)
    if times and collected and one.history.batches > 1 and not here:
        seen = times in one.times.get(each.kind, ())
        if not one.runs or (collected == 1 and not seen):
            return _of_pass(one, collected)
    elif times:
        one.times.setdefault(each.kind, set()).add(times)
    if times:
        return _valid(one.shares, times)
    return _of_pass(one, collected) if collected else None


def _times(sizes: tuple[int, ...], rows: tuple[int, ...]) -> int:
    """How many there are for each row, where that is the same number on all processes; else 0."""
    if not rows or not any(rows):
        return 0
    factor = max(sizes) // max(rows)
    return factor if all(size == factor * count for size, count in zip(sizes, rows, strict=True)) else 0


def _valid(shares: Shares, times: int) -> list[Segment]:
    return [(rank, 0, valid * times) for rank, valid in enumerate(shares.valid)]


def _of_pass(one: Pass, times: int) -> list[Segment]:
    """Rows that were collected over all batches so far, batch by batch."""
    kept: list[Segment] = []
    start = [0] * len(one.history.totals)
    for shares in one.history:
        for rank, valid in enumerate(shares.valid):
            kept.append((rank, start[rank], start[rank] + valid * times))
            start[rank] += shares.rows[rank] * times
    return kept
