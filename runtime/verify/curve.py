"""The losses of two runs, drawn with characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .compare.training import mean
from .traces import RunTrace

_WIDTH, _HEIGHT = 60, 10
_FIRST, _SECOND, _BOTH = "o", "x", "*"


def curve(trace: RunTrace) -> list[float]:
    """The loss at every backward pass from the place of the first one; the mean over the processes."""
    per_rank = []
    for rank in trace.ranks:
        events = rank.of("loss")
        per_rank.append([float(event["v"]) for event in events if event["at"] == events[0]["at"]])
    return [mean(list(column)) for column in zip(*per_rank, strict=False)]


def draw(first: Sequence[float], second: Sequence[float], names: tuple[str, str]) -> tuple[str, ...]:
    """Lines of text with both curves, the steps from left to right; nothing when there is nothing to draw."""
    values = [value for value in (*first, *second) if math.isfinite(value)]
    length = max(len(first), len(second))
    if length < 2 or not values:
        return ()
    low, high = min(values), max(values)
    spread = (high - low) or 1.0
    width = min(_WIDTH, length)
    grid = [[" "] * width for _ in range(_HEIGHT)]
    for series, mark in ((first, _FIRST), (second, _SECOND)):
        for index, value in enumerate(series):
            if math.isfinite(value):
                column = index * (width - 1) // max(length - 1, 1)
                row = _HEIGHT - 1 - round((value - low) / spread * (_HEIGHT - 1))
                grid[row][column] = mark if grid[row][column] in (" ", mark) else _BOTH
    margin = max(len(f"{high:.4g}"), len(f"{low:.4g}"))
    labels = [f"{high:.4g}", *[""] * (_HEIGHT - 2), f"{low:.4g}"]
    lines = [f"{label:>{margin}} |{''.join(row).rstrip()}" for label, row in zip(labels, grid, strict=True)]
    lines.append(f"{'':>{margin}} +{'-' * width} {length} losses")
    lines.append(f"{'':>{margin}}  {_FIRST} {names[0]}   {_SECOND} {names[1]}   {_BOTH} both")
    return tuple(lines)
