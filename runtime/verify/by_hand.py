"""Originals that are distributed by hand: how they are started, and whether what they did can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .compare.waits import fell_apart, where
from .hooks.spawning import UNSEEN
from .traces import RankTrace, RunTrace

_SPAWNS = re.compile(rb"\b(spawn|start_processes)\s*\(")


def spawns(texts: Iterable[bytes]) -> bool:
    """Whether a program starts its processes by itself (``mp.spawn``), and none must be launched as by torchrun."""
    return any(b"multiprocessing" in text and _SPAWNS.search(text) is not None for text in texts)


def obstacle(trace: RunTrace) -> str:
    """Why a run of such an original is nothing to compare with, in words; empty when it is."""
    count = trace.size
    here = f"on {count} process{'' if count == 1 else 'es'}"
    started = [event["n"] for rank in trace.ranks for event in rank.of("spawned")]
    if UNSEEN in started:
        return "the original starts its own processes in a way in which they cannot be watched"
    other = next((n for n in started if n != count), None)
    if other is not None:
        return f"the original starts {other} processes here instead of {count}"
    failed = failing(trace)
    if failed is not None:
        return f"the original does not run {here}: {told(failed)}"
    if fell_apart(trace):
        return f"the original does not run {here}: {where(trace)}"
    groups = [{event["size"] for event in rank.of("group")} for rank in trace.ranks]
    if count > 1 and any(sizes != {count} for sizes in groups):
        return f"the original's processes do not connect: no process group of {count} is opened"
    if not groups[0] and not trace.main.of("step"):
        return "the original opens no process group and makes no optimizer step where it is watched"
    return ""


def failing(trace: RunTrace) -> RankTrace | None:
    """The process that has failed by itself, rather than for the others' absence."""
    if trace.ended not in ("", "alone"):
        return None
    failed = [rank for rank in trace.ranks if rank.error is not None or (rank.status or 0) > 0]
    return min(failed, key=lambda rank: rank.within() is not None, default=None)


def told(rank: RankTrace) -> str:
    """Its error, in one line."""
    if rank.error is None:
        return f"process {rank.rank} ends with status {rank.status}"
    return f"{rank.error['kind']}: {rank.error['message']}".partition("\n")[0][:200]
