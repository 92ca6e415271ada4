"""
Whether a process of the job still lives, as its machine knows it.

A connection that a process has left open tells the others of its end only when every fork of it (a worker of a loader)
has ended, too. So each process tells where it runs, and those of the same machine can look.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NUMBERING = Path("/proc/self/ns/pid")
_STARTED = 19
"""Where `/proc/PID/stat` has the time of the start, counted from the state."""

Home: TypeAlias = "tuple[str, int, str]"
"""Whose process numbers are meant; the number; and when the process was started, for numbers come again."""


def here() -> Home:
    """Where this process runs; the first is empty where that cannot be told (Linux says it)."""
    started = started_at(os.getpid())
    return (_machine() if started else "", os.getpid(), started)


def ended(home: Home) -> bool:
    """That process has ended; False for those of other machines and containers."""
    machine, number, started = home
    return bool(machine) and machine == _machine() and started_at(number) != started


def _machine() -> str:
    try:
        return f"{_BOOT.read_text().strip()} {_NUMBERING.readlink()}"
    except OSError:
        return ""


def started_at(number: int) -> str:
    """Empty when there is no such process, or nothing of it but its status."""
    try:
        state, *others = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if state in "ZX" else others[_STARTED - 1]
