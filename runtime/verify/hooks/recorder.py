"""The trace of one process: JSON lines, written as things happen, so that a killed process leaves what it did."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from ..program import place_of

_MOST_EVENTS = 200_000
_DONE = frozenset("line write elsewhere rename save batch loss backward step".split())
"""Events that tell what the script does, and not only where it is."""


class Ended(BaseException):
    """The run has made enough steps. Not an error: a script's `except Exception` must not swallow it."""


@dataclass
class Recorder:
    """
    Writes the trace.

    Args:
        path: of the file.
        rank: of this process.
        root: the mirror; frames below it are "the script".
        base: the folder that its files are named from.
    """

    path: str
    rank: int
    root: str
    base: str
    steps: int
    """Batches of a pass, and steps after which passes are short."""
    most_steps: int
    """After so many steps the run is ended."""
    current: int | None = None
    """The pass that the batch in hand comes from, while it lasts."""
    made: dict[int, int] = field(default_factory=dict)
    """Optimizer steps so far, by optimizer."""
    draws: int = 0
    """Single random numbers that the script has drawn from python or numpy while it worked on batches."""
    muted: bool = False
    """Leave out what the script does: this process only stands for one that another one would start."""
    shortened: bool = False
    """A pass has ended before its loader would have."""
    under_way: Any = None
    """The collective call that was last made without waiting for it."""
    held: dict[str, set[int]] = field(default_factory=dict)
    """What exact mode had to hold still: kind, and the identities of those concerned."""

    def __post_init__(self) -> None:
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._pid = os.getpid()
        self._count = 0
        self._start = time.monotonic()
        self._lock = threading.RLock()

    @property
    def mine(self) -> bool:
        """This is the traced process itself, no worker that it has forked."""
        return os.getpid() == self._pid

    def write(self, event: str, **fields: Any) -> None:
        """Add one event. Workers of loaders may only report what they write to disk."""
        if not self.mine and event not in ("write", "elsewhere"):
            return
        if self.muted and event in _DONE:
            return
        with self._lock:
            self._count += 1
            if self._count > _MOST_EVENTS and event not in ("end", "step"):
                return
            entry = {"e": event, "t": round(time.monotonic() - self._start, 3), **fields}
            os.write(self._fd, json.dumps(entry, default=str).encode() + b"\n")

    def leave(self, event: str) -> None:
        """Add an event that tells of leaving, and before it that the last collective call is over, if it is."""
        completed = getattr(self.under_way, "is_completed", None)
        if completed is not None and completed():
            self.under_way = None
            self.write("done")
        self.write(event)

    def hold(self, kind: str, key: int) -> None:
        """Note that something was held still."""
        self.held.setdefault(kind, set()).add(key)

    def step_count(self) -> int:
        """Steps of the optimizer that has made the most."""
        return max(self.made.values(), default=0)

    def limit(self) -> int:
        """How many batches a pass that begins now may have."""
        return self.steps if self.step_count() < self.steps else min(2, self.steps)

    def line(self) -> str:
        """Where the script is: file and line of its innermost frame."""
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(self.root) and "/site-packages/" not in name:
                return place_of(os.path.relpath(name, self.base), frame.f_lineno)
            frame = frame.f_back  # type: ignore[assignment]
        return "?"
