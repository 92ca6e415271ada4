"""Which rows the processes read, together, at every step."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest

from ..traces import RankTrace, RunTrace
from ..verdict import Promise
from .tolerances import About

Rows = Counter[str]


def samples(about: About) -> Promise:
    """Between two optimizer steps the processes read, together, exactly the rows that the original reads."""
    wanted = together(about.original)
    if not any(wanted):
        return about.untestable("samples", "no batch of a loader reaches a backward pass")
    per_rank = [by_step(rank, about.by_hand) for rank in about.migrated.ranks]
    made = (max if about.migrated.sound else min)(map(len, per_rank))
    for number, rows in enumerate(wanted[:made]):
        shares = [steps[number] if number < len(steps) else Counter() for steps in per_rank]
        found = sum(shares, Counter())
        if found != rows:
            if about.draws_by_row() and any(share != rows for share in shares):
                return about.untestable("samples", about.by_nature())
            training = about.migrated.main.training_passes()
            read = [event for event in about.migrated.main.of("batch") if event["p"] in training]
            at = read[0].get("at", "") if read else ""
            return about.broken("samples", _difference(rows, shares), step=number + 1, figure="samples", at=at)
    return about.held("samples", f"{sum(map(Counter.total, wanted[:made]))} rows")


def evaluated(about: About) -> tuple[str, str] | None:
    """
    The first pass without training whose rows are others than the original's: the line of its loop, and what is said.

    Every process may go through all rows there, or all of them together.
    """
    wanted, *per_rank = (_evaluations(rank) for rank in (about.original.main, *about.migrated.ranks))
    if not about.original.sound or not about.migrated.sound or any(len(one) != len(wanted) for one in per_rank):
        return None
    for (rows, _), *shares in zip(wanted, *per_rank, strict=True):
        found = sum((share for share, _ in shares), Rows())
        if found != rows and any(share != rows for share, _ in shares):
            counts = f": it reads {found.total()} here, and the original's {rows.total()}"
            said = "the rows of this loop are not the original's (a sampler, `drop_last`, a loop that ends early)"
            return shares[0][1], f"{said}{counts if found.total() != rows.total() else ''}"
    return None


def _evaluations(rank: RankTrace) -> list[tuple[Rows, str]]:
    """The rows of each pass in which nothing is trained, and the line of its loop."""
    training = rank.training_passes()
    found: dict[int, tuple[Rows, str]] = {}
    for event in rank.of("batch"):
        if event["p"] not in training:
            rows, _ = found.setdefault(event["p"], (Counter(), event.get("at", "")))
            rows.update(event["rows"][: event["valid"]])
    return list(found.values())


def together(trace: RunTrace) -> list[Rows]:
    """The rows that all processes use at each optimizer step; of several, also those that a sampler repeats."""
    shares = zip_longest(*(by_step(rank, trace.size > 1) for rank in trace.ranks), fillvalue=Rows())
    return [sum(one, Rows()) for one in shares]


def by_step(rank: RankTrace, repeated: bool = False) -> list[Rows]:
    """
    The rows of training batches that each optimizer step uses; none for a step of which the process has only a row that
    others have as well.

    Args:
        rank: the process.
        repeated: also those that complete a short batch, and are no rows of the data's own.
    """
    training = rank.training_passes()
    steps: list[Rows] = []
    rows, read = Rows(), False
    for event in rank.events:
        if event["e"] == "batch" and event["p"] in training:
            read = True
            rows.update(event["rows"][: None if repeated else event["valid"]])
        elif event["e"] == "step":
            if read:
                steps.append(rows)
            rows, read = Rows(), False
    return steps


def first_completed(original: RunTrace, migrated: RunTrace) -> int | None:
    """The first step whose batch is shorter than others, and is completed with other rows by the migrated script."""
    wanted = together(original)
    per_rank = [by_step(rank, original.size > 1) for rank in migrated.ranks]
    longest = max(map(Counter.total, wanted), default=0)
    for number, (rows, *shares) in enumerate(zip(wanted, *per_rank, strict=False), 1):
        found: Rows = sum(shares, Counter())
        if found != rows:
            short = rows.total() < longest and not rows - found
            return number if short else None
    return None


def _difference(wanted: Rows, shares: list[Rows]) -> str:
    found = sum(shares, Counter())
    if len(shares) > 1 and all(share == wanted for share in shares):
        return f"every process reads all {wanted.total()} rows: the loader is not sharded"
    twice = found - wanted
    missing = wanted - found
    parts = [f"the processes read {found.total()} rows, the original {wanted.total()}"]
    parts += [f"{missing.total()} of its rows are missing"] if missing else []
    parts += [f"{twice.total()} are read in addition"] if twice else []
    return ", ".join(parts)
