"""Whether a run finished, and where its processes were when they hung."""

from __future__ import annotations

from ..traces import LEAVING, Event, RankTrace, RunTrace, script_line
from ..verdict import Promise
from .tolerances import About

_COLLECTIVE = (
    "gloo",
    "nccl",
    "connection",
    "collective",
    "timed out",
    "broken pipe",
    "process group",
    "socket",
    "peer",
)
_LONGEST = 240
"""Of an error's line so many characters are shown."""


def runs(about: About) -> Promise:
    """The migrated script comes to its end as the original does."""
    trace = about.migrated
    if fell_apart(trace):
        return about.untestable("runs", "its processes waited for each other until the time limit")
    for rank in trace.ranks:
        if rank.error is not None:
            error = rank.error
            text = f"process {rank.rank} ends with {error['kind']} at {error['at']}: {_first_line(error['message'])}"
            step = len(rank.of("step")) + 1
            return about.broken("runs", text, step=step, figure=error["kind"], at=error["at"])
        if rank.status is not None and rank.status and not trace.ended:
            signal = f"is ended by signal {-rank.status}" if rank.status < 0 else f"ends with status {rank.status}"
            last = f": {_last_line(rank.errors)}" if rank.errors.strip() else ""
            return about.broken("runs", f"process {rank.rank} {signal}{last}", figure="status")
    if trace.ended:
        if about.original.ended == trace.ended:
            return about.held("runs", f"both were cut off ({_why(trace)})")
        more = f" ({where(trace)})" if trace.ended == LEAVING else ""
        return about.broken("runs", f"it was ended: {_why(trace)}{more}; the original was not", figure=trace.ended)
    return about.held("runs", "ended after enough steps" if trace.cut else "to its end")


def _why(trace: RunTrace) -> str:
    words = {
        "time": "it takes too long",
        "output": "it prints too much",
        "disk": "it writes too much",
        LEAVING: "its training is over, but its processes do not end",
    }
    return words.get(trace.ended, trace.ended)


def waits(about: About) -> Promise:
    """No process hangs waiting for the others."""
    trace = about.migrated
    if not fell_apart(trace):
        return about.held("waits")
    step = min(len(rank.of("step")) for rank in trace.ranks) + 1
    parted = next(filter(None, (rank.parted() for rank in trace.ranks)), "")
    text = parted.partition(". Every process")[0] if parted else where(trace)
    return about.broken("waits", text, step=step, figure="a collective call", at=_waits_at(trace))


def _waits_at(trace: RunTrace) -> str:
    """The line of a process that waits for the others, of one that failed where none does."""
    inside = [event["at"] for rank in trace.ranks if (event := rank.within()) is not None]
    failed = [rank.error["at"] for rank in trace.ranks if rank.error is not None]
    return next(iter([*inside, *failed]), "")


def where(trace: RunTrace) -> str:
    """Where the processes were that hung, and where their collective calls differ."""
    places = "; ".join(_place(rank, trace) for rank in trace.ranks)
    parting = first_parting(trace)
    return f"{places}{'. ' + parting if parting else ''}"


def fell_apart(trace: RunTrace) -> bool:
    """The run ended because its processes did not make the same collective calls."""
    if trace.size == 1:
        return False
    if trace.ended == "wait" or any(rank.parted() for rank in trace.ranks):
        return True
    waiting = any(rank.end is None and rank.within() is not None for rank in trace.ranks)
    if trace.ended == "time":
        return waiting and first_parting(trace) != ""
    if trace.ended == "alone":
        failed = [rank for rank in trace.ranks if rank.error is not None]
        return all(_of_a_collective(rank) for rank in failed)
    return any(_of_a_collective(rank) for rank in trace.ranks) and not _own_error(trace)


def _own_error(trace: RunTrace) -> bool:
    return any(rank.error is not None and not _of_a_collective(rank) for rank in trace.ranks)


def _of_a_collective(rank: RankTrace) -> bool:
    """Ended by an error that another process's absence explains."""
    if rank.error is None:
        return bool(rank.status and rank.status < 0 and rank.within() is not None)
    message = rank.error["message"].lower()
    return rank.within() is not None and any(word in message for word in _COLLECTIVE)


def _place(rank: RankTrace, trace: RunTrace) -> str:
    """Where a process stood."""
    name = f"process {rank.rank}"
    inside = rank.within()
    line = script_line(rank.stack)
    if rank.end is not None or (inside is None and rank.error is None and _has_ended(rank)):
        return f"{name} has reached the end of the script"
    if rank.error is not None:
        where = f" in {_operation(inside)}" if inside else ""
        return f"{name} failed{where} at {rank.error['at']} ({_first_line(rank.error['message'])})"
    if inside is not None:
        return f"{name} waits in {_operation(inside)} at {line or inside['at']}"
    if line is None and rank.stack:
        return f"{name} has left the script"
    return f"{name} is at {line or '?'}"


def _has_ended(rank: RankTrace) -> bool:
    return bool(rank.stack) and script_line(rank.stack) is None


def _operation(event: Event) -> str:
    return "the exchange of gradients (backward)" if event["e"] == "loss" else str(event["op"])


def first_parting(trace: RunTrace) -> str:
    """The first collective that the processes do not enter together."""
    calls = [[e for e in rank.events if e["e"] in ("coll", "loss")] for rank in trace.ranks]
    for number, events in enumerate(zip(*calls, strict=False), 1):
        if len({event.get("op", "backward") for event in events}) > 1 or len({event["at"] for event in events}) > 1:
            listed = ", ".join(f"process {rank}: {_operation(e)} at {e['at']}" for rank, e in enumerate(events))
            return f"Collective mismatch at call {number}: {listed}"
    lengths = [len(one) for one in calls]
    if len(set(lengths)) > 1:
        longest = calls[lengths.index(max(lengths))][min(lengths)]
        missing = [str(rank) for rank, length in enumerate(lengths) if length == min(lengths)]
        return f"Process {', '.join(missing)} never reaches {_operation(longest)} at {longest['at']}"
    return ""


def _last_line(text: str) -> str:
    return _cut(text.strip().splitlines()[-1])


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return _cut(lines[0]) if lines else ""


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
