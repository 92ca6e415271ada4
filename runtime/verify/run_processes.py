"""Runs: forked from this process, watched, bounded in time, output and disk, and ended with all their children."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .child import Task, run
from .scratch import used
from .traces import LEAVING, WAITING, RankTrace, last_event, read_events

_POLL_SECONDS = 0.05
_DISK_SECONDS = 1.0
_ALONE_SECONDS = 8.0
"""How long the others may go on when one process has failed."""
_COMPUTES = 4
"""So many times longer a process may be silent that is in no collective call: it may be computing."""
_DUMP_SECONDS = 0.3
"""A stack that has not grown for so long is whole."""
_LONGEST_DUMP = 10.0
_KEPT_OUTPUT = 100_000
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass(kw_only=True)
class Limits:
    """What one run may use."""

    seconds: float
    wait: float
    output_bytes: int
    disk_bytes: int


@dataclass
class Process:
    """One rank of a run."""

    task: Task
    pid: int
    pipes: list[int]
    status: int | None = None
    """Exit status; minus the number of the signal that ended it; None while it runs."""
    seen: int = 0
    """Bytes of its trace so far."""
    moved: float = 0.0
    """When its trace has last grown."""
    kept: list[bytes] = field(default_factory=lambda: [b"", b""])
    """The end of what it has written to stdout and stderr."""


class Run:
    """
    One run of a script on one or several processes.

    Args:
        name: for messages.
        tasks: one for each rank.
        limits: what it may use.
    """

    def __init__(self, name: str, tasks: Sequence[Task], limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self.ended = ""
        """Why it was ended from outside: "time", "output", "disk", "wait", "leaving", "alone"; empty: by itself."""
        self.started = self.now = time.monotonic()
        self.processes = [_fork(task) for task in tasks]
        self._written = 0
        self._looked = self.started
        self._failed_at: float | None = None

    @property
    def running(self) -> list[Process]:
        """Those that have not ended."""
        return [one for one in self.processes if one.status is None]

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return self.now - self.started

    def poll(self) -> bool:
        """Look after the run once; False when it is over."""
        self.now = time.monotonic()
        for process in self.processes:
            self._drain(process)
            _reap(process)
            self._progress(process)
        if self.running:
            reason = self._too_much()
            if reason:
                self.end(reason)
        if not self.running:
            for process in self.processes:
                _sweep(process)
                self._drain(process)
                _close(process)
        return bool(self.running)

    def end(self, reason: str) -> None:
        """End it with all its children; where it waits, ask first where it is."""
        self.ended = self.ended or reason
        if reason in ("wait", LEAVING, "alone", "time"):
            for process in self.running:
                _signal(process, signal.SIGUSR1, group=False)
            self._dumped()
        for process in self.running:
            _signal(process, signal.SIGKILL)
        for process in self.running:
            _reap(process, block=True)

    def _dumped(self) -> None:
        """Wait until all have written where they are: on a busy machine that takes a while."""
        until = time.monotonic() + _LONGEST_DUMP
        before: list[int] = []
        while self.running and time.monotonic() < until:
            sizes = [_size(process.task.stacks) for process in self.running]
            if sizes == before and all(sizes):
                return
            before = sizes
            time.sleep(_DUMP_SECONDS)
            for process in self.running:
                _reap(process)

    def _too_much(self) -> str:
        if self.seconds > self.limits.seconds:
            return "time"
        if self._written > self.limits.output_bytes:
            return "output"
        if self.now - self._looked > _DISK_SECONDS:
            self._looked = self.now
            if used(self.processes[0].task.scratch) > self.limits.disk_bytes:
                return "disk"
        return self._waits() if len(self.processes) > 1 else ""

    def _waits(self) -> str:
        still = min(self.now - one.moved for one in self.running)
        failed = any(one.status for one in self.processes)
        if still > self.limits.wait:
            waiting = all(last_event(one.task.trace) in WAITING for one in self.running)
            if waiting or still > self.limits.wait * _COMPUTES:
                return LEAVING if not failed and all(map(_leaving, self.running)) else "wait"
        if failed:
            self._failed_at = self._failed_at or self.now
            if self.now - self._failed_at > _ALONE_SECONDS:
                return "alone"
        return ""

    def _progress(self, process: Process) -> None:
        size = _size(process.task.trace)
        if size != process.seen or not process.moved:
            process.seen, process.moved = size, self.now

    def _drain(self, process: Process) -> None:
        for index, pipe in enumerate(process.pipes):
            while True:
                try:
                    data = os.read(pipe, 65_536) if pipe >= 0 else b""
                except BlockingIOError:
                    break
                if not data:
                    break
                self._written += len(data)
                process.kept[index] = (process.kept[index] + data)[-_KEPT_OUTPUT:]
                if self._written > self.limits.output_bytes:
                    return


def watch(
    runs: Sequence[Run], meanwhile: Callable[[Run], None], tell: Callable[[Sequence[Run]], None] = lambda going: None
) -> None:
    """
    Look after runs until all are over.

    Args:
        runs: that have begun.
        meanwhile: called with each one that has just ended.
        tell: called with those that go on, again and again.
    """
    going = list(runs)
    try:
        _watch(going, meanwhile, tell)
    except BaseException:
        for one in going:
            one.end("stopped")
        raise


_asked_to_end: list[int] = []
"""Signals that have asked this process to end."""


def end_on_signals() -> None:
    """
    Let Ctrl-C and SIGTERM raise `KeyboardInterrupt`, so that everything is cleaned up.

    The request is noted as well: raised in a callback that runs at a fork, the exception would be printed and lost.
    """

    def note(number: int, frame: object) -> None:
        _asked_to_end.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)


def _watch(going: list[Run], meanwhile: Callable[[Run], None], tell: Callable[[Sequence[Run]], None]) -> None:
    while going:
        if _asked_to_end:
            raise KeyboardInterrupt
        pipes = [pipe for one in going for process in one.processes for pipe in process.pipes if pipe >= 0]
        select.select(pipes, [], [], _POLL_SECONDS)
        for one in list(going):
            if not one.poll():
                going.remove(one)
                meanwhile(one)
        tell(going)
        time.sleep(0.005)


def _end_with_parent() -> None:
    """On Linux: also when that one is killed."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def _fork(task: Task) -> Process:
    (out, write_out), (err, write_err) = os.pipe(), os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _end_with_parent()
            os.dup2(write_out, 1)
            os.dup2(write_err, 2)
            os.closerange(3, 256)
            status = run(task)
        finally:
            os._exit(status & 0xFF)
    os.close(write_out)
    os.close(write_err)
    for pipe in (out, err):
        os.set_blocking(pipe, False)
    return Process(task, pid, [out, err])


def _leaving(process: Process) -> bool:
    """Its training is over, and only its end does not come."""
    return RankTrace(process.task.rank, read_events(process.task.trace), None).leaving


def _size(path: Path) -> int:
    """Nothing where there is no file yet."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _reap(process: Process, block: bool = False) -> None:
    if process.status is not None:
        return
    pid, status = os.waitpid(process.pid, 0 if block else os.WNOHANG)
    if pid:
        process.status = os.waitstatus_to_exitcode(status)


def _sweep(process: Process) -> None:
    """What the process has left in its group."""
    _signal(process, signal.SIGKILL)


def _signal(process: Process, number: int, group: bool = True) -> None:
    try:
        if group:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _close(process: Process) -> None:
    for index, pipe in enumerate(process.pipes):
        if pipe >= 0:
            os.close(pipe)
            process.pipes[index] = -1
