"""How much memory a process holds at most while something runs."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
import threading
from pathlib import Path

_PAUSE = 0.0005
_UNIT = 1 if sys.platform == "darwin" else 1024


class _Allocated(ctypes.Structure):
    """What glibc tells of its heaps."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


class Held:
    """
    The most memory that is held in the body, beyond that before it.

    With glibc these are the bytes that are allocated, looked at twice in a millisecond by a thread: the same in each
    run. Elsewhere it is resident memory, with what an allocator keeps for later: that differs by a tenth.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._ask = getattr(libc, "mallinfo2", None)
        if self._ask is not None:
            self._ask.restype = _Allocated
        self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Held:
        gc.collect()
        self._before = self._now()
        reset = Path("/proc/self/clear_refs")
        if self._ask is not None:
            self._thread.start()
        elif reset.exists():
            reset.write_text("5")
        return self

    def __exit__(self, *_: object) -> None:
        if self._ask is not None:
            self._over.set()
            self._thread.join()

    @property
    def peak(self) -> int:
        """In bytes."""
        return (self._most if self._ask is not None else _resident("VmHWM")) - self._before

    def _look(self) -> None:
        while not self._over.wait(_PAUSE):
            self._most = max(self._most, self._now())

    def _now(self) -> int:
        if self._ask is None:
            return _resident("VmRSS")
        told = self._ask()
        return int(told.uordblks + told.hblkhd)


def _resident(name: str) -> int:
    """Where it cannot be reset, since the process has begun."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))
    return found or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT
