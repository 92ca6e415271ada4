"""What a verification has found: the other half of the versioned contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

VERSION = 1

HELD, BROKEN, ORIGINAL_FAILS, USAGE = 0, 1, 2, 3
"""Exit statuses: all promises held; one is broken; the original does not run by itself, or not so that anything could
be compared; wrong usage."""


class Outcome(str, Enum):
    """What has become of a promise."""

    HELD = "held"
    BROKEN = "broken"
    UNTESTABLE = "not testable"


@dataclass(frozen=True, kw_only=True)
class Promise:
    """One promise, on one number of processes."""

    id: str
    promise: str
    """In words."""
    processes: int
    outcome: Outcome
    detail: str = ""
    """What is different and by how much, or why it cannot be tested here."""
    step: int | None = None
    """The first optimizer step, counted from 1, that differs."""
    figure: str = ""
    """The first figure that differs."""
    at: str = ""
    """The line that a broken promise points to: "train.py:57", of the script that `side` names."""
    code: str = ""
    """What that line says."""
    side: str = "migrated"
    """"migrated" or "original"."""
    cause: str = ""
    """The likeliest cause; empty where none is likelier than others."""
    origin: str = ""
    """A second line, where the cause is: it makes a wrong figure of the rows of one process."""
    origin_code: str = ""
    """What that line says."""
    absent: bool = False
    """The script does nothing of the kind: it saves nothing, it prints nothing."""


@dataclass(frozen=True, kw_only=True)
class RunSeen:
    """One run, in figures."""

    name: str
    processes: int
    seconds: float
    steps: int
    ended: str
    """"end", "steps" (ended after enough of them), "time", "output", "disk", "wait", "alone",
    "leaving" (the training was over, and a process did not end), "error"."""
    status: int | None
    writes_elsewhere: tuple[str, ...] = ()
    """Paths outside of the mirror that the script has written."""
    scratch: str | None = None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A script that does not run: its own traceback."""

    error: str
    at: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Everything that a report needs."""

    status: int
    mode: str
    """"exact", "double" or "as-is"."""
    device: str
    promises: tuple[Promise, ...] = ()
    notes: tuple[str, ...] = ()
    """What had to be held still, and what was not seen."""
    curves: dict[str, list[float]] = field(default_factory=dict)
    """Loss by optimizer step: "original", and the migrated script's by number of processes."""
    drawing: tuple[str, ...] = ()
    """The curves as lines of text."""
    runs: tuple[RunSeen, ...] = ()
    original_error: Failure | None = None

    def of(self, id: str, processes: int) -> Promise:
        """One promise."""
        return next(p for p in self.promises if p.id == id and p.processes == processes)
