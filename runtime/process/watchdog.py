"""
The thread that compares the processes: they must ask for the same collectives in the same order.

It has its own connection to the store, and compares the rings of all processes twice a second. Where two differ,
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
from contextlib import suppress
from datetime import timedelta
from typing import Any

from ..errors import CollectiveError, TorchliftError
from . import peers
from .call_log import Ring, parted, sentence
from .statements import Board, SharedVerdict

PERIOD = timedelta(milliseconds=400)
"""How often processes are compared, and one that waits asks what has come of it."""
_PATIENCE_SECONDS = 1.5
"""How long a process that is held inside of torch may take to notice the error, before it is ended."""
_HEARING_SECONDS = 5.0
"""How long rank 0 waits until the others have read what is wrong, before its store ends."""
_TOLD = 64
_RINGS = "torchlift/ring"
_HOMES = "torchlift/home"
_VERDICT = "torchlift/parted"
_HEARD = "torchlift/parted/heard"
_LOOKED = "torchlift/looked"
_RAISED = "torchlift/raised"
_RAISED_HEARD = "torchlift/raised/heard"


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
        self.board = Board(rank, size)
        self.verdict: SharedVerdict | None = None
        self.raised = ""
        """What another process has failed with, once it has told."""
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
        self._failed = False
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Until the group is left, or the store is gone (and with it the others)."""
        try:
            self._store.set(f"{_HOMES}/{self._rank}", json.dumps(peers.here()))
            self.tell()
            while not self._pause():
                self.tell()
                self.board.post(self._store)
                self._meet()
                self._listen()
                if self.verdict is not None:
                    self._insist()
                    return
        except (RuntimeError, ValueError, OSError):  # the store lives in a process that has gone
            return

    def _pause(self) -> bool:
        """Wait until it is time again, or something is to be posted. True at the end."""
        self.board.fresh.wait(PERIOD.total_seconds())
        return self._ended.is_set()

    def stop(self) -> None:
        """No more comparing; the store is left alone, which another process may close at any time now."""
        self._ended.set()
        self.board.fresh.set()
        self.join(PERIOD.total_seconds())

    def tell(self) -> None:
        """Let the others know where this process is."""
        with self._lock:
            if self.ring.chain != self._told:
                self._told = self.ring.chain
                told = [entry.told() for entry in self.ring.tail(_TOLD)]
                self._store.set(f"{_RINGS}/{self._rank}", json.dumps(told))

    def tell_last(self) -> None:
        """Let the others know how this process has ended."""
        self.tell()
        self.board.fresh.set()
        self.board.post(self._store)

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
            f"in a collective call{self._where()}. {self._why() or 'Its own output says why.'}"
        )

    def _where(self) -> str:
        latest = self.ring.tail(1)
        return f": {latest[0].describe()}{latest[0].place(' at ')}" if latest else ""

    def _why(self) -> str:
        """What another process has failed with; the latest word of it may still be in the store."""
        with suppress(RuntimeError, ValueError, OSError):  # the store has gone with it
            self._hear_failure()
        return self.raised

    def _hear_failure(self) -> None:
        if not self.raised and not self._failed and self._store.check([_RAISED]):
            self.raised = self._store.get(_RAISED).decode()
            self._store.add(_RAISED_HEARD, 1)

    def fail(self, text: str) -> None:
        """
        Tell the others what this process has failed with.

        Args:
            text: what, and where.
        """
        self._failed = True
        if self.verdict is not None:  # they all know
            return
        try:
            if self._store.add(f"{_RAISED}/count", 1) > 1:
                return
            self._store.set(_RAISED, f"rank {self._rank} failed with {text}")
            if self._rank == 0:
                self._until_heard(_RAISED_HEARD)
        except (RuntimeError, ValueError, OSError):  # the store is gone: so are the others
            return

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
        self._hear_failure()
        if self._rank == 0:
            self._compare()
        elif self._store.check([_VERDICT]):
            verdict = SharedVerdict(*json.loads(self._store.get(_VERDICT)))
            self._store.add(_HEARD, 1)
            self.verdict = verdict

    def _compare(self) -> None:
        verdict = self._parted() or self.board.compare(self._store)
        if verdict is not None:
            self._store.set(_VERDICT, json.dumps(verdict))
            self._until_heard(_HEARD)
            self.verdict = verdict

    def _until_heard(self, key: str) -> None:
        """The store ends with rank 0: the others must have read something before. The main thread goes on with it."""
        until = time.monotonic() + _HEARING_SECONDS
        while time.monotonic() < until and self._store.add(key, 0) + len(self.gone()) < self._size - 1:
            time.sleep(0.02)
            if self._ended.is_set() and threading.current_thread() is self:
                break

    def _parted(self) -> SharedVerdict | None:
        keys = [f"{_RINGS}/{rank}" for rank in range(1, self._size)]
        self._met = self._met or self._store.check(keys)
        if not self._met:
            return None
        newest = self._store.multi_get(keys)
        mine = self.ring.tail(len(self.ring.entries))  # after the others were read: they are not ahead of it
        for rank, told in enumerate(newest, start=1):
            found = parted(mine, json.loads(told))
            if found is not None:
                return SharedVerdict("CollectiveMismatch", sentence(*found, rank))
        return None

    def _insist(self) -> None:
        """A main thread that waits inside of torch (in a backward pass) hears nothing: end the process for it."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until or not self.busy:
            if self._delivered or self._ended.wait(0.05):
                return
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        stack = "".join(traceback.format_stack(main)) if main is not None else ""
        sys.stdout.flush()
        error, text = self.verdict or ("", "")
        sys.stderr.write(f"{stack}torchlift.runtime.{error}: {text}\n")
        sys.stderr.flush()
        os._exit(1)

    def look(self) -> None:
        """
        Compare, or hear what has been found. For the main thread, when this one has been stopped.

        Raises:
            CollectiveMismatch: the processes made different calls.
            TorchliftError: what the processes have stated does not agree.
        """
        if self.verdict is None:
            self._listen()
        self.check()

    def last_look(self) -> None:
        """
        Compare once more, when all have told how their script has ended.

        Raises:
            CollectiveMismatch: some collectives at the end went past one another.
            TorchliftError: what the processes have stated last does not agree.
        """
        if self._rank == 0:
            if self.verdict is None:
                self._compare()
            self._store.set(_LOOKED, "1")
        until = time.monotonic() + _HEARING_SECONDS
        while self._rank and self.verdict is None and time.monotonic() < until:
            looked = self._store.check([_LOOKED])
            self._listen()  # after that: what rank 0 has found is there by then
            if looked:
                break
            time.sleep(0.01)
        self.check()
        self.board.warn()

    def last_word(self) -> None:
        """
        Another process has failed while this one was leaving.

        Raises:
            TorchliftError: with what is wrong on all of them.
        """
        if self.verdict is None and self._rank:
            self._listen()
        self.check()

    def unheard(self) -> TorchliftError | None:
        """What is wrong, and the script has not been told yet; the others have been, when this returns."""
        if self.verdict is not None and self._rank == 0:
            self._until_heard(_HEARD)
        return None if self.verdict is None or self._delivered else self.verdict.exception()

    def lost(self) -> bool:
        """Another process has ended, or says that it has failed."""
        return bool(self.gone() or self._why())

    def hear(self) -> None:
        """
        Something is wrong with a collective: wait for the comparison to say what it is.

        Raises:
            CollectiveMismatch: the processes made different calls.
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
            CollectiveMismatch: the processes made different calls.
        """
        if self.verdict is not None:
            self._delivered = True
            raise self.verdict.exception() from None
