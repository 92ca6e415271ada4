"""Traces as data: what one run has done, read from the lines that its processes have written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from .program import place_of

Event = dict[str, Any]

_PARTED = "CollectiveMismatch"
WAITING = ("coll", "loss", "left")
"""Events after which a process may wait for the others."""
LEAVING = "leaving"
"""Why a run was ended: its training was over, and a process did not come to its end."""


@dataclass
class RankTrace:
    """What one process has done."""

    rank: int
    events: list[Event]
    status: int | None
    """Exit status, minus the number of a signal; None when it was still running."""
    output: str = ""
    errors: str = ""
    """The end of stdout and stderr."""
    stack: list[str] = field(default_factory=list)
    """Where it stood when it was asked, the innermost frame first: "file:line in function"."""

    def of(self, kind: str) -> list[Event]:
        """Its events of one kind."""
        return [event for event in self.events if event["e"] == kind]

    @property
    def end(self) -> Event | None:
        """How it ended, when the script has come to its end."""
        found = self.of("end")
        return found[-1] if found else None

    @property
    def error(self) -> Event | None:
        """The error that the script has ended with."""
        found = self.of("error")
        return found[-1] if found else None

    def training_passes(self) -> set[int]:
        """Passes over loaders during which something was backpropagated."""
        return {event["p"] for event in self.of("loss") if event["p"] is not None}

    def within(self) -> Event | None:
        """The collective, or the backward pass, that it has entered and not left."""
        last = next((event for event in reversed(self.events) if event["e"] not in ("error", "left")), None)
        return last if last is not None and last["e"] in ("coll", "loss") else None

    @property
    def leaving(self) -> bool:
        """It has left its group or the script, and waits in no collective call: its training is over."""
        last = next((e["e"] for e in reversed(self.events) if e["e"] in ("group", "ungroup", "left")), "")
        return self.error is None and self.within() is None and last in ("ungroup", "left")

    def parted(self) -> str:
        """What our runtime has found out about processes that make different collective calls; empty if nothing."""
        if self.error is not None and self.error["kind"] == _PARTED:
            return str(self.error["message"])
        for line in self.errors.splitlines():
            if line.startswith(f"torchlift.runtime.{_PARTED}: "):
                return line.partition(": ")[2]
        return ""


@dataclass
class RunTrace:
    """What a run has done, on all its processes."""

    name: str
    ranks: list[RankTrace]
    ended: str = ""
    """Why it was ended from outside; empty when it ended itself."""
    seconds: float = 0.0
    files: dict[str, FileSeen] = field(default_factory=dict)
    """Files that are new or changed, by path relative to the script's folder."""

    @property
    def main(self) -> RankTrace:
        """RankTrace 0."""
        return self.ranks[0]

    @property
    def size(self) -> int:
        """How many processes there are."""
        return len(self.ranks)

    @property
    def sound(self) -> bool:
        """Every process has come to the end of the script without an error."""
        leaving = self.ended == LEAVING
        return (leaving or not self.ended) and all(
            rank.status == 0 or (leaving and rank.leaving and rank.of("left")) for rank in self.ranks
        )

    @property
    def cut(self) -> bool:
        """The run was ended before the end of the script (after enough steps, for its time): the rest was not seen."""
        if self.ended == LEAVING and not self.sound:
            return True
        return self.ended in ("time", "output", "disk") or any(rank.of("ended") for rank in self.ranks)

    def held(self) -> dict[str, int]:
        """What exact mode has held still, and how many of each."""
        found: dict[str, int] = {}
        for rank in self.ranks:
            for kind, count in ((rank.end or {}).get("held") or {}).items():
                found[kind] = max(found.get(kind, 0), count)
        return found

    def longest_gap(self) -> float:
        """The longest time, in seconds, between two events of one process."""
        gaps = [0.0]
        for rank in self.ranks:
            times = [event["t"] for event in rank.events]
            gaps += [b - a for a, b in pairwise(times)]
        return max(gaps)


def found_port_in_use(trace: RunTrace) -> bool:
    """A process has failed because something else holds a port: it may be free a moment later."""
    errors = [rank.error for rank in trace.ranks if rank.error is not None]
    return any("address already in use" in str(error["message"]).lower() for error in errors)


@dataclass(frozen=True)
class FileSeen:
    """A file that a run has left."""

    size: int
    hash: str
    text: str | None
    """Its contents, when it is a short text."""
    arrays: dict[str, Any] | None = field(default=None, compare=False)
    """Its arrays by name, when numpy has saved it. Whether files differ, their hashes tell."""


def read_events(path: Path) -> list[Event]:
    """The events of a trace; a last line that is incomplete is left out."""
    return list(_events(path))


def _events(path: Path) -> Iterator[Event]:
    if not path.exists():
        return
    with path.open(errors="replace") as stream:
        for line in stream:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            yield event


def last_event(path: Path) -> str:
    """The kind of the last event of a trace that is being written."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 65_536))
            lines = stream.read().splitlines()
    except OSError:
        return ""
    found = re.match(rb'\{"e": "(\w+)"', lines[-1]) if lines else None
    return found[1].decode() if found else ""


def read_stack(path: Path, root: Path, base: Path) -> list[str]:
    """
    The stack of the main thread as faulthandler has written it, innermost frame first.

    Frames of the script come as "train.py:12 in train", those of libraries with their file's name only.
    """
    if not path.exists():
        return []
    found: list[str] = []
    threads = path.read_text(errors="replace").split("Thread 0x")
    for thread in threads:
        if "Current thread" in thread or "most recent call first" in thread:
            frames = [_frame(line, root, base) for line in thread.splitlines() if line.strip().startswith("File ")]
            if any(frame.startswith("@") for frame in frames) or not found:
                found = frames
    return found


def _frame(line: str, root: Path, base: Path) -> str:
    _, path, rest = line.split('"', 2)
    number = rest.split("line ")[1].split(" ")[0]
    function = rest.rsplit(" in ", 1)[-1]
    if path.startswith(str(root)) and "/site-packages/" not in path:
        return f"@{place_of(os.path.relpath(path, base), int(number))} in {function}"
    return f"{Path(path).name}:{number} in {function}"


def script_line(stack: list[str]) -> str | None:
    """The line of the script where a process is."""
    for frame in stack:
        if frame.startswith("@"):
            return frame[1:].split(" in ")[0]
    return None
