"""
The thread that compares the processes: they must ask for the same collectives in the same order.

It has its own connection to the store, and compares the rings of all processes twice a second. Where two have parted,
every process gets an error that names both lines, instead of waiting for the other for half an hour. A process that is
merely slow disturbs nobody.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from datetime import timedelta
from typing import Any

from ..errors import CollectiveError, CollectiveMismatch
from . import peers
from .call_log import Ring, parted, sentence

PERIOD = timedelta(milliseconds=400)
"""How often processes are compared, and one that waits asks what has come of it."""
_PATIENCE_SECONDS = 1.5
"""How long a process that is held inside of torch may take to notice the error, before it is ended."""
_TOLD = 64
_RINGS = "torchlift/ring"
_HOMES = "torchlift/home"
_VERDICT = "torchlift/parted"
_HEARD = "torchlift/parted/heard"


class Watch(threading.Thread):
    """
    Compares this process with the others.

    Args:
        store: of the process group; the thread makes a connection of its own.
        rank: this process. Rank 0 compares; the others listen.
        size: how many processes there are.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        super().__init__(name="torchlift watch", daemon=True)
        self.ring = Ring()
        self.verdict: str | None = None
        self.busy = False
        """The main thread is inside a collective."""
        self._store = store.clone() if hasattr(store, "clone") else store
        self._rank = rank
        self._size = size
        self._told = -1
        self._homes: dict[int, peers.Home] = {}
        """Where the other processes run; empty until all have told."""
        self._met = False
        self._delivered = False
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Until the group is left, or the store is gone (and with it the others)."""
        try:
            self._store.set(f"{_HOMES}/{self._rank}", json.dumps(peers.here()))
            self.tell()
            while not self._ended.wait(PERIOD.total_seconds()):
                self.tell()
                self._meet()
                self._listen()
                if self.verdict is not None:
                    self._insist()
                    return
        except (RuntimeError, ValueError, OSError):  # the store lives in a process that has gone
            return

    def stop(self) -> None:
        """No more comparing; the store is left alone, which another process may close at any time now."""
        self._ended.set()
        self.join(PERIOD.total_seconds())

    def tell(self) -> None:
        """Let the others know where this process stands."""
        with self._lock:
            if self.ring.chain != self._told:
                self._told = self.ring.chain
                told = [entry.told() for entry in self.ring.tail(_TOLD)]
                self._store.set(f"{_RINGS}/{self._rank}", json.dumps(told))

    def _meet(self) -> None:
        others = [rank for rank in range(self._size) if rank != self._rank]
        keys = [f"{_HOMES}/{rank}" for rank in others]
        if not self._homes and self._store.check(keys):
            told = map(json.loads, self._store.multi_get(keys))
            self._homes = dict(zip(others, told, strict=True))

    def gone(self) -> list[int]:
        """The processes that are known to have ended."""
        return [rank for rank, home in self._homes.items() if peers.ended(home)]

    def ended(self) -> CollectiveError:
        """An error for who waits for a process that is not there any more."""
        gone = self.gone()
        who = ", ".join(f"rank {rank}" for rank in gone) or "another process"
        return CollectiveError(
            f"{who} {'have' if len(gone) > 1 else 'has'} ended, or left the job, while rank {self._rank} waits for it "
            "in a collective call. Its own output says why."
        )

    def late(self, waited: float) -> CollectiveError:
        """An error for who has waited as long as the process group allows."""
        try:
            rings = [(rank, f"{_RINGS}/{rank}") for rank in range(self._size) if rank != self._rank]
            told = {rank: json.loads(self._store.get(key)) for rank, key in rings if self._store.check([key])}
        except (RuntimeError, ValueError, OSError):  # the store is gone
            told = {}
        behind = [f"rank {rank}" for rank, entries in told.items() if not entries or entries[-1][0] < self.ring.number]
        return CollectiveError(
            f"rank {self._rank} has waited {waited:.0f} s for {', '.join(behind) or 'the others'}, the timeout of the "
            "process group. If that may take longer: "
            "Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(...))])."
        )

    def _listen(self) -> None:
        if self._rank == 0:
            self._compare()
        elif self._store.check([_VERDICT]):
            verdict = self._store.get(_VERDICT).decode()
            self._store.add(_HEARD, 1)
            self.verdict = verdict

    def _compare(self) -> None:
        keys = [f"{_RINGS}/{rank}" for rank in range(1, self._size)]
        self._met = self._met or self._store.check(keys)
        if not self._met:
            return
        newest = self._store.multi_get(keys)
        mine = self.ring.tail(len(self.ring.entries))  # after the others were read: they are not ahead of it
        for rank, told in enumerate(newest, start=1):
            found = parted(mine, json.loads(told))
            if found is not None:
                verdict = sentence(*found, rank)
                self._store.set(_VERDICT, verdict)
                until = time.monotonic() + 2 * PERIOD.total_seconds()
                while time.monotonic() < until and self._store.add(_HEARD, 0) < self._size - 1:
                    time.sleep(0.02)  # the store ends with this process: the others must have read it before
                self.verdict = verdict
                return

    def _insist(self) -> None:
        """A main thread that waits inside of torch (in a backward pass) hears nothing: end the process for it."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until or not self.busy:
            if self._delivered or self._ended.wait(0.05):
                return
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        stack = "".join(traceback.format_stack(main)) if main is not None else ""
        sys.stdout.flush()
        sys.stderr.write(f"{stack}torchlift.runtime.CollectiveMismatch: {self.verdict}\n")
        sys.stderr.flush()
        os._exit(1)

    def last_look(self) -> None:
        """
        Compare once more, when all have told how their script has ended.

        Raises:
            CollectiveMismatch: some collectives at the end went past one another.
        """
        if self._rank == 0 and self.verdict is None:
            self._compare()
            self.check()

    def hear(self) -> None:
        """
        Something is wrong with a collective: wait for the comparison to say what it is.

        Raises:
            CollectiveMismatch: the processes have parted.
        """
        try:
            self.tell()
        except (RuntimeError, ValueError, OSError):  # the store lives in a process that has gone
            self.check()
            return
        until = time.monotonic() + 4 * PERIOD.total_seconds()
        while time.monotonic() < until and self.verdict is None and self.is_alive():
            time.sleep(0.02)
        self.check()

    def check(self) -> None:
        """
        Raise what has been found.

        Raises:
            CollectiveMismatch: the processes have parted.
        """
        if self.verdict is not None:
            self._delivered = True
            raise CollectiveMismatch(self.verdict) from None
