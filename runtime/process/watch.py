"""
Watches over the processes: they must ask for the same collectives in the same order.

A thread with its own connection to the store compares the rings of all processes twice a second. Where two have
parted, every process gets an error that names both lines, instead of waiting for the other for half an hour. A process
that is merely slow disturbs nobody.
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

import torch.distributed as dist

from ..errors import CollectiveError, CollectiveMismatch
from .ring import Ring, Shown, parted

PERIOD = timedelta(milliseconds=400)
"""How often processes are compared, and one that waits asks what has come of it."""
_PATIENCE_SECONDS = 1.5
"""How long a process that is held inside of torch may take to notice the error, before it is ended."""
_TOLD = 64
_RINGS = "torchlift/ring"
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
        self._met = False
        self._delivered = False
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Until the group is left, or the store is gone (and with it the others)."""
        try:
            self.tell()
            while not self._ended.wait(PERIOD.total_seconds()):
                self.tell()
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
            if self.ring.number != self._told:
                self._told = self.ring.number
                told = [entry.told() for entry in self.ring.tail(_TOLD)]
                self._store.set(f"{_RINGS}/{self._rank}", json.dumps(told))

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
                verdict = _sentence(*found, rank)
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
        self.tell()
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


def _sentence(mine: list[Any], theirs: list[Any], rank: int) -> str:
    places = [f" at {told[3]}" if told[3] else "" for told in (mine, theirs)]
    return (
        f"the processes have parted at their collective number {mine[0]}: rank 0 is in {mine[2]}{places[0]}, "
        f"rank {rank} is in {theirs[2]}{places[1]}. Every process must call the same, in the same "
        "order, with tensors of the same kind: look for a condition (the rank, a metric, the number of batches) around "
        "one of these lines."
    )


class _Here:
    """The watch of this process; it has one, as it has one process group."""

    watch: Watch | None = None
    forked = False
    """This process is a fork of the one that the watch is of."""
    group: object = None
    """Whose processes are watched."""


def _in_a_fork() -> None:
    _Here.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)


def begin() -> None:
    """Watch over the default process group, unless that is done already."""
    new = _Here.forked and _Here.group is not dist.group.WORLD  # in that of its parent a fork cannot speak
    if _Here.watch is None or new:
        store = dist.distributed_c10d._get_default_store()
        _Here.watch = Watch(store, dist.get_rank(), dist.get_world_size())
        _Here.forked, _Here.group = False, dist.group.WORLD
        _Here.watch.start()


def end() -> Watch | None:
    """The process leaves: what the others still ask for is not coming any more."""
    watch, _Here.watch = _Here.watch, None
    if watch is None or _Here.forked:
        return None
    watch.stop()
    if watch.verdict is None:
        watch.ring.note("the end of the script")
        watch.tell()
    return watch


def failed() -> bool:
    """The processes have parted."""
    return _Here.watch is not None and _Here.watch.verdict is not None


def note(kind: str, signature: str = "", shapes: Shown = ()) -> None:
    """
    This process is about to enter a collective. `done` ends it.

    Raises:
        CollectiveMismatch: the processes have parted before.
        CollectiveError: this is a fork of a process of the job.
    """
    watch = _Here.watch
    if watch is not None:
        if _Here.forked:
            raise CollectiveError(
                f"{kind}: this is a fork of a process of the job (a worker of a loader, or of multiprocessing), which "
                "the others do not know. Hand what it has found to the process that started it, and exchange it there."
            )
        if watch.verdict is not None:
            watch.check()
        watch.ring.note(kind, signature, shapes)
        watch.busy = True


def chain() -> int:
    """The checksum of all collectives that this process has asked for."""
    return 0 if _Here.watch is None else _Here.watch.ring.chain


def disagreement() -> None:
    """
    The processes told one another different checksums.

    Raises:
        CollectiveMismatch: with both lines, when the comparison has found them.
    """
    if _Here.watch is not None:
        _Here.watch.hear()
    raise CollectiveMismatch(
        "the processes called different collectives here. Every process must call the same, in the same order, and not "
        "be interrupted in the middle of one."
    )


def explain() -> None:
    """
    A collective inside of torch has failed: perhaps because the processes have parted.

    Raises:
        CollectiveMismatch: they have.
    """
    if _Here.watch is not None:
        _Here.watch.hear()


def check() -> None:
    """
    Raise what has been found, in the middle of a wait.

    Raises:
        CollectiveMismatch: the processes have parted.
    """
    if _Here.watch is not None:
        _Here.watch.check()


def done() -> None:
    """The collective has been left."""
    if _Here.watch is not None:
        _Here.watch.busy = False


def finish(work: Any) -> None:
    """
    Wait for a collective on CPU tensors, but not for processes that are not coming.

    Raises:
        CollectiveMismatch: the processes have parted.
    """
    watch = _Here.watch
    if watch is None:
        work.wait()
        return
    while True:
        try:
            work.wait(PERIOD)
        except RuntimeError as error:
            watch.check()
            if "timed out" in str(error).lower() and (not work.is_completed() or work.is_success()):
                continue  # also where it was completed right after the wait had ended
            watch.hear()
            raise
        watch.busy = False
        return
