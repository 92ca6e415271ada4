"""Which gathered rows are real: duplicates that completed a batch are left out, and the script's order is kept."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..errors import RemainderError
from .progress import Pass, Progress
from .shares import Shares

Segment = tuple[int, int, int]
"""Rows `start` to `end` of what rank `rank` handed in: (rank, start, end)."""


def real_rows(progress: Progress, sizes: tuple[int, ...], tensors: Iterable[torch.Tensor] = ()) -> list[Segment]:
    """
    The rows to keep, in order.

    Args:
        progress: the passes that the rows may come from.
        sizes: how many rows each rank handed in; alike on every process, and so is the answer.
        tensors: all that were handed in together: where one is of a batch in hand, all rows come from that loader.

    Raises:
        RemainderError: the batch in hand has duplicates, and `sizes` fits neither it nor what has been collected.
    """
    if not any(sizes):
        return []
    candidates = list(progress.candidates())
    known = [one for one in candidates if one.gave(tensors)]
    for one in [*known, *candidates]:
        found = _segments(one, sizes)
        if found is not None:
            if one not in known:
                _only_one(one, sizes, found)
            return found
    shares = progress.latest.shares if progress.latest is not None else None
    if shares is None or shares.exact:
        return [(rank, 0, size) for rank, size in enumerate(sizes)]
    if all(valid in (0, rows) for valid, rows in zip(shares.valid, shares.rows, strict=True)):
        return [(rank, 0, size) for rank, size in enumerate(sizes) if shares.valid[rank]]
    raise RemainderError(
        f"gather_for_metrics: the processes hold {list(shares.rows)} rows of the current batch, some of them "
        f"duplicates, but got {list(sizes)} rows, so the duplicates cannot be identified. Pass one row per row of the "
        "batch, or use accelerator.gather for values that are not rows."
    )


def _segments(one: Pass, sizes: tuple[int, ...]) -> list[Segment] | None:
    return _of_batch(one, sizes) or _of_pass(one, sizes) or _of_flattened(one, sizes)


def _only_one(one: Pass, sizes: tuple[int, ...], found: list[Segment]) -> None:
    """Loaders that hand out batches in turn must not give different answers."""
    for other in one.beside:
        if other.runs and _of_batch(other, sizes) not in (None, found):
            raise RemainderError(
                f"gather_for_metrics: {list(sizes)} rows match the batches of two loaders that are read in turn, and "
                "these have different duplicates. Pass a tensor of the batch together with its results: "
                "accelerator.gather_for_metrics((output, target))."
            )


def _of_batch(one: Pass, sizes: tuple[int, ...]) -> list[Segment] | None:
    if one.shares is None or one.shares.rows != sizes:
        return None
    return _valid(one.shares)


def _valid(shares: Shares) -> list[Segment]:
    return [(rank, 0, valid) for rank, valid in enumerate(shares.valid)]


def _of_pass(one: Pass, sizes: tuple[int, ...]) -> list[Segment] | None:
    """Rows that were collected over all batches so far, batch by batch."""
    totals = tuple(map(sum, zip(*(shares.rows for shares in one.history), strict=True)))
    if totals != sizes:
        return None
    kept: list[Segment] = []
    start = [0] * len(sizes)
    for shares in one.history:
        for rank, valid in enumerate(shares.valid):
            kept.append((rank, start[rank], start[rank] + valid))
            start[rank] += shares.rows[rank]
    return kept


def _of_flattened(one: Pass, sizes: tuple[int, ...]) -> list[Segment] | None:
    """Several values per row, one row after the other."""
    if one.shares is None or not all(one.shares.rows):
        return None
    times = {divmod(size, rows) for size, rows in zip(sizes, one.shares.rows, strict=True)}
    if len(times) != 1:
        return None
    factor, rest = times.pop()
    return None if rest or not factor else [(rank, 0, valid * factor) for rank, valid in enumerate(one.shares.valid)]
