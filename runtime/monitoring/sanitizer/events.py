"""What one rank records: JSON lines, written as things happen, so that a process that is killed leaves what it did."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ...process.call_log import OURS
from .loops import loops_around

MOST_EVENTS = 200_000
"""A rank records so many events; after that, only how it ends."""
_MOST_AT_ONE_LINE = 2_000
"""Values of one expression."""
_MOST_AT_ONCE = 100
"""Values of one expression between two collectives or steps: more than that are decisions about single rows."""


@dataclass
class _Turns:
    """Values of one expression."""

    taken: int = 0
    clock: int = -1
    since: int = 0
    """Since the clock has changed."""
    moves: int = -1
    at_once: int = 0
    """Since the last collective or step."""


class EventLog:
    """
    The record of this process.

    Args:
        folder: that of the whole job on this machine.
        rank: of this process.
        size: how many processes there are.
        roots: the folders whose files are the script.
        started: "launcher" when the sanitizer was there before the script, "accelerator" when that has started it.
    """

    def __init__(self, folder: str, rank: int, size: int, roots: tuple[str, ...], started: str) -> None:
        self.roots = tuple(os.path.realpath(root).rstrip(os.sep) + os.sep for root in roots)
        self.clock = 0
        """Collectives of all ranks so far: what two ranks do at the same number happens at the same time."""
        self.moves = 0
        """Collectives and optimizer steps so far."""
        self.full: set[str] = set()
        """Expressions of which the first values only were recorded."""
        self.rank = rank
        self._others = _not_the_script()
        self._known: dict[str, bool] = {}
        self._counts: dict[str, _Turns] = {}
        self._written = 0
        self._pid = os.getpid()
        self._lock = threading.RLock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(os.path.join(folder, f"rank{rank}.jsonl"), flags, 0o644)  # noqa: PTH118
        self.write("begin", rank=rank, size=size, started=started, folder=os.getcwd())  # noqa: PTH109

    @property
    def mine(self) -> bool:
        """This is the rank itself, no worker that it has forked."""
        return os.getpid() == self._pid

    def write(self, event: str, **fields: Any) -> None:
        """Add an event."""
        if self.mine and (self._written < MOST_EVENTS or event == "end"):
            with self._lock:
                self._written += 1
                entry = {"e": event, "t": round(time.time() * 1e6), **fields}
                os.write(self._descriptor, json.dumps(entry, default=str).encode() + b"\n")

    def end(self) -> None:
        """The process ends in order."""
        self.write("end", full=sorted(self.full), cut=self._written >= MOST_EVENTS)

    # ------------------------------------------------------------ where the script is

    def frames(self) -> Iterator[FrameType]:
        """The frames of the script, the innermost first."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self.is_script(frame.f_code.co_filename):
                yield frame
            frame = frame.f_back

    def is_script(self, file: str) -> bool:
        """This file is the user's, and belongs to no library."""
        known = self._known.get(file)
        if known is None:
            path = os.path.realpath(file)
            known = path.startswith(self.roots) and not path.startswith(self._others) and not file.startswith("<")
            self._known[file] = known = known and "site-packages" not in path
        return known

    def line(self) -> str:
        """File and line of the script; empty when it is not on the way here."""
        for frame in self.frames():
            return place(frame)
        return ""

    def loops(self) -> list[str]:
        """The loops of the script that are under way, the innermost first."""
        return [loop for frame in self.frames() for loop in loops_around(frame.f_code.co_filename, frame.f_lineno)]

    # ------------------------------------------------------------ values

    def turn(self, expression: str, most: int = _MOST_AT_ONE_LINE) -> tuple[int, int] | None:
        """
        When an expression has a value: the clock, and the number of this value since that has changed. None when there
        have been enough of them.
        """
        count = self._counts.setdefault(expression, _Turns())
        if count.clock != self.clock:
            count.clock, count.since = self.clock, 0
        if count.moves != self.moves:
            count.moves, count.at_once = self.moves, 0
        count.since += 1
        count.at_once += 1
        if count.at_once > _MOST_AT_ONCE:
            return None
        count.taken += 1
        if count.taken > most:
            self.full.add(expression)
            return None
        return self.clock, count.since

    def give_back(self, expression: str) -> None:
        """The value of that turn is not recorded: it does not count."""
        self._counts[expression].taken -= 1


def place(frame: FrameType) -> str:
    """File and line."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _not_the_script() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = [os.path.realpath(path) for path in map(sysconfig.get_path, names) if path]
    return (OURS, *(path + os.sep for path in paths))
