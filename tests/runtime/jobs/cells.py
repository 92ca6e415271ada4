"""The cells of the matrix: all of them, or so few that every pair of values still occurs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

Cell = dict[str, object]
Pair = tuple[tuple[str, object], tuple[str, object]]


def whole(factors: Mapping[str, Sequence[object]]) -> list[Cell]:
    """Every value of every factor with all others."""
    return [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]


def pairs_of(cell: Cell) -> list[Pair]:
    """The pairs of values that occur in a cell."""
    return list(itertools.combinations(cell.items(), 2))


def pairwise(factors: Mapping[str, Sequence[object]]) -> list[Cell]:
    """
    Cells in which every pair of values of two factors occurs.

    One after the other: a pair that is missing, and beside it those values that bring the most missing pairs along; of
    those that bring as many, the one that has been beside the others most rarely.
    """
    missing = {pair for cell in whole(factors) for pair in pairs_of(cell)}
    waiting = sorted(missing, key=lambda pair: [(n, list(factors[n]).index(v)) for n, v in pair])
    seen, found = Counter[Pair](), []
    while missing:
        first = next(pair for pair in waiting if pair in missing)
        cell: Cell = dict(first)
        for name, values in factors.items():
            if name not in cell:
                with_each = [
                    {key: {**cell, name: v}[key] for key in factors if key in {**cell, name: v}} for v in values
                ]
                cell = max(with_each, key=lambda one: (sum(p in missing for p in pairs_of(one)), -_often(seen, one)))
        found.append(cell)
        missing.difference_update(pairs_of(cell))
        seen.update(pairs_of(cell))
    return found


def _often(seen: Counter[Pair], cell: Cell) -> int:
    return sum(seen[pair] for pair in pairs_of(cell))
