"""Processes whose parents have ended: they become ours, so that they can be ended, too."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def adopt_orphans() -> None:
    """On Linux: children whose parents have ended become ours, so that they can be ended, too."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """End every child that this process still has."""
    for _ in range(20):
        children = _children()
        if not children:
            return
        for pid in children:
            _kill(pid)
        for pid in children:
            _wait(pid)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as stream:  # noqa: PTH123
            return [int(word) for word in stream.read().split()]
    except OSError:
        return []


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return
