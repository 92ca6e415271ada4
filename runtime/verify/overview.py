"""The verdict at a glance, for every report: the conclusion, and the rows of the table, what is broken first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .verdict import BROKEN, ORIGINAL_FAILS, VERSION, Outcome, Promise, Verdict

FOLLOWS = "it follows from another broken promise"
"""How the cause of a promise begins that is not broken by itself."""
NOT_COMPARED = "not compared: the loss, or another figure, of one process's own rows"
"""Ends what is said of numbers that may differ by design."""
_ORDER = (Outcome.BROKEN, Outcome.UNTESTABLE, Outcome.HELD)


@dataclass(frozen=True, kw_only=True)
class VerdictRow:
    """One row: a promise on all numbers of processes on which it has the same outcome, or several with one reason."""

    promise: str
    on: str
    """The numbers of processes: ``1, 2``."""
    outcome: Outcome
    detail: str = ""
    at: str = ""
    code: str = ""
    side: str = ""
    cause: str = ""
    origin: str = ""
    origin_code: str = ""
    """These six as in `Promise`."""


def conclusion(verdict: Verdict) -> str:
    """The first line: held, broken or not verified, and on how many processes how much."""
    if verdict.original_error is not None:
        return (
            "NOT VERIFIED: the original script fails, in a run that shortens its passes over loaders. If it runs by "
            "itself with the arguments after --, pass a larger --steps; else mend it first."
        )
    if verdict.status == ORIGINAL_FAILS:
        return "NOT VERIFIED: there was no run of the original to compare with."
    mode = f"({verdict.mode} mode, {'CPU' if verdict.device == 'cpu' else verdict.device})"
    told = _told(verdict.promises)
    counts = [_counts(told, processes) for processes in sorted({p.processes for p in told})]
    if verdict.status == BROKEN:
        broken = [f"{bad} of {_promises(total)} {on}" for on, total, _, bad in counts if bad]
        return f"BROKEN {mode}: {', '.join(broken)}. First: {_first(rows(verdict.promises)[0], len(broken) > 1)}."
    whole = [_promises(total) if held == total else f"{held} of {_promises(total)}" for _, total, held, _ in counts]
    each = ", ".join(f"{number} {on}" for number, (on, *_) in zip(whole, counts, strict=True))
    if all(held == total for _, total, held, _ in counts):
        return f"HELD {mode}: {each}."
    return f"HELD {mode}, as far as it can be tested: {each}."


def _promises(number: int) -> str:
    return f"{number} promise{'' if number == 1 else 's'}"


def _counts(promises: Sequence[Promise], processes: int) -> tuple[str, int, int, int]:
    """Of one number of processes, in words: all promises, those held, and those broken."""
    mine = [p.outcome for p in promises if p.processes == processes]
    on = f"on {processes} process{'' if processes == 1 else 'es'}"
    return on, len(mine), mine.count(Outcome.HELD), mine.count(Outcome.BROKEN)


def _first(row: VerdictRow, several: bool) -> str:
    """The promise that is broken first, and where."""
    step = row.detail.partition(":")[0] if row.detail.startswith("step ") else ""
    place = f"the original's {row.at}" if row.side == "original" else row.at
    on = f"on {row.on} process{'' if row.on == '1' else 'es'}" if several and "," not in row.on else ""
    return ", ".join(text for text in (f'"{row.promise}"', on, step, place) if text)


def rows(promises: Sequence[Promise]) -> list[VerdictRow]:
    """
    The rows: what is broken in the order in which it went wrong, then what cannot be tested and why, then what is held.

    What the script does nothing of has none, and beside broken promises those that are held share one.
    """
    found = _told(promises)
    broken = [p for p in found if p.outcome is Outcome.BROKEN]
    broken.sort(key=lambda p: (p.cause.startswith(FOLLOWS), p.step or math.inf))
    listed = [_both(alike) for alike in _alike(broken)]
    untestable = [p for p in found if p.outcome is Outcome.UNTESTABLE]
    for why in dict.fromkeys(p.detail for p in untestable):
        listed.append(_together([p for p in untestable if p.detail == why], why))
    held = [p for p in found if p.outcome is Outcome.HELD]
    if broken:
        return [*listed, *_folded(held)]
    for id in dict.fromkeys(p.id for p in held):
        alike = [p for p in held if p.id == id]
        listed.append(_row(alike, "; ".join(_of_each(alike))))
    return listed


def _told(promises: Sequence[Promise]) -> list[Promise]:
    """Without those about what the script does nothing of: neither does it where another run was cut short."""
    nothing = {p.id for p in promises if p.absent}
    return [p for p in promises if not p.absent and not (p.id in nothing and p.outcome is Outcome.UNTESTABLE)]


def _alike(broken: Sequence[Promise]) -> list[list[Promise]]:
    """Broken promises that are one on several numbers of processes: at one step and line, for one cause."""
    found: dict[object, list[Promise]] = {}
    for p in broken:
        found.setdefault((p.id, p.step, p.at, p.side, p.cause, p.origin), []).append(p)
    return list(found.values())


def _both(alike: Sequence[Promise]) -> VerdictRow:
    said = {p.processes: p.detail for p in alike}
    detail = alike[0].detail
    if len(set(said.values())) > 1:
        detail = "; ".join(f"on {processes}: {text}" for processes, text in said.items())
    return replace(_broken(replace(alike[0], detail=detail)), on=_on(alike))


def _on(alike: Sequence[Promise]) -> str:
    return ", ".join(str(number) for number in sorted({p.processes for p in alike}))


def _broken(promise: Promise) -> VerdictRow:
    """A broken promise; one that follows from another names that, and has no line and no cause of its own."""
    row = _row([promise], _detail(promise))
    if not promise.cause.startswith(FOLLOWS):
        side = promise.side if promise.at else ""
        row = replace(row, origin=promise.origin, origin_code=promise.origin_code)
        return replace(row, at=promise.at, code=promise.code, side=side, cause=promise.cause)
    after = f"follows from{promise.cause.removeprefix(FOLLOWS).partition(', from step')[0].lstrip(',')}"
    return replace(row, detail=f"{row.detail}; {after}")


def _together(alike: Sequence[Promise], why: str) -> VerdictRow:
    """Promises of which the same is said, in one row."""
    words = list(dict.fromkeys(p.promise if NOT_COMPARED not in p.detail else _excused(p) for p in alike))
    row = _row(alike, why)
    if len(words) == 1:
        return row
    return replace(row, promise=f"{len(words)} promises", detail=f"{why}: {'; '.join(words)}".removeprefix(": "))


def _excused(promise: Promise) -> str:
    """A promise that is held as far as it was looked at, with what was not."""
    return f"{promise.promise} ({next(part for part in promise.detail.split('; ') if NOT_COMPARED in part)})"


def _folded(held: Sequence[Promise]) -> Iterator[VerdictRow]:
    """What is held, a row for each set of numbers of processes."""
    on: dict[str, set[int]] = {}
    for promise in held:
        on.setdefault(promise.id, set()).add(promise.processes)
    for sizes in sorted(map(sorted, on.values()), key=len, reverse=True):
        if alike := [p for p in held if sorted(on.get(p.id, ())) == sizes]:
            yield _together(alike, "")
            on = {id: own for id, own in on.items() if sorted(own) != sizes}


def _row(alike: Sequence[Promise], detail: str) -> VerdictRow:
    return VerdictRow(promise=alike[0].promise, on=_on(alike), outcome=alike[0].outcome, detail=detail)


def _of_each(alike: Sequence[Promise]) -> Iterator[str]:
    """What is said of a promise on each number of processes; once where that is the same."""
    said = {p.processes: _detail(p) for p in alike}
    if len(set(said.values())) == 1:
        yield from filter(None, list(said.values())[:1])
    else:
        yield from (f"on {processes}: {text}" for processes, text in said.items() if text)


def _detail(promise: Promise) -> str:
    return f"step {promise.step}: {promise.detail}" if promise.step else promise.detail


def left_out(promises: Sequence[Promise]) -> str:
    """What the script does nothing of, in a sentence; empty where there is nothing."""
    absent = {p.promise: p.detail for p in promises if p.absent}
    told = "; ".join(f"{promise} ({why})" for promise, why in absent.items())
    return f"Nothing to compare: {told}." if told else ""


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict as plain data, fit for strict JSON."""
    glance = {
        "conclusion": conclusion(verdict),
        "rows": [asdict(row) for row in rows(verdict.promises)],
        "left_out": left_out(verdict.promises),
    }
    found: dict[str, Any] = _plain({"version": VERSION, "kind": "verdict", **glance, **asdict(verdict)})
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Outcome):
        return value.value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
