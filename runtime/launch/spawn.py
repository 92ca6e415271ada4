"""Starting processes, watching them, and ending all of them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

from ..errors import LaunchError
from .logs import Logs
from .plan import PlannedProcess

_GRACE_SECONDS = 5.0
"""How long a process may take to end when it is asked to."""
_SAVING_SECONDS = 30.0
"""How long it may take when the whole job is asked to (SIGTERM, of a scheduler): it may save what it has reached."""
_POLL_SECONDS = 0.02
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class _Asked(Exception):
    """The launcher itself was asked to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def run(planned: Sequence[PlannedProcess], quiet: bool = False, logs: Logs | None = None, attempt: int = 0) -> int:
    """
    Start the processes and wait for them; their output goes where the launcher's goes, if not told otherwise.

    When one fails, the others are ended. When the launcher is interrupted or ended, so are all of them.

    Args:
        planned: what to start.
        quiet: say nothing about a process that fails.
        logs: files for their output.
        attempt: how often the job has been started before.

    Returns:
        0 when all succeeded; else the exit status of the first that failed (128 + n where signal n ended it).

    Raises:
        LaunchError: a process could not be started.
    """
    previous = {number: signal.signal(number, _ask) for number in (signal.SIGINT, signal.SIGTERM)}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for one in planned:
            processes.append(
                _start(one, logs, attempt)
            )  # one by one: those started so far must be known when one fails
        return _watch(processes, quiet)
    except _Asked as asked:
        _pass_on(asked.number, planned, processes)
        return 128 + asked.number
    finally:
        for number in previous:
            signal.signal(number, signal.SIG_IGN)
        _end(processes)
        if logs is not None:
            logs.finish()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _ask(number: int, _frame: FrameType | None) -> None:
    raise _Asked(number)


def _pass_on(number: int, planned: Sequence[PlannedProcess], processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """
    Hand a signal on and wait for what the processes do about it; asked once more, nobody is waited for.

    Python hears it alone: the workers of its loaders are needed until it has saved. Another command may have started
    one, so that all of its processes hear it.
    """
    for one, process in zip(planned, processes, strict=False):  # as many as have been started
        if one.command[0] == sys.executable:
            process.send_signal(number)
        else:
            _send(process, number)
    until = time.monotonic() + (_SAVING_SECONDS if number == signal.SIGTERM else _GRACE_SECONDS)
    try:
        while any(process.poll() is None for process in processes) and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
    except _Asked:
        return


def _start(one: PlannedProcess, logs: Logs | None, attempt: int) -> subprocess.Popen[bytes]:
    streams = {} if logs is None else logs.streams(attempt, one.rank, int(one.environment["LOCAL_RANK"]))
    try:
        process = subprocess.Popen(
            one.command,
            env=dict(one.environment),
            start_new_session=True,  # the terminal's Ctrl-C reaches the launcher only, which passes it on once
            preexec_fn=_bound_to(os.getpid()),
            **streams,
        )
    except OSError as error:
        raise LaunchError(f"process {one.rank} could not be started: {error}") from error
    finally:
        for stream in streams.values():
            if hasattr(stream, "close"):  # the process has its own
                stream.close()
    if logs is not None:
        logs.opened(process, attempt, one.rank)
    return process


def _bound_to(parent: int) -> Callable[[], None] | None:
    """On Linux: a child ends when the launcher does, even when that is killed."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl

    def bind() -> None:
        prctl(_DIES_WITH_PARENT, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return bind


def _watch(processes: Sequence[subprocess.Popen[bytes]], quiet: bool) -> int:
    waiting = list(processes)
    while waiting:
        for process in list(waiting):
            status = process.poll()
            if status is None:
                continue
            waiting.remove(process)
            if status:
                return _first_failure(process, processes, quiet)
        time.sleep(_POLL_SECONDS)
    return 0


def _first_failure(seen: subprocess.Popen[bytes], processes: Sequence[subprocess.Popen[bytes]], quiet: bool) -> int:
    """The status of the process that was seen to fail first, as a shell would give it."""
    status = seen.returncode
    rank = list(processes).index(seen)
    what = f"was ended by signal {-status}" if status < 0 else f"failed with exit status {status}"
    if not quiet:
        sys.stderr.write(f"torchlift: process {rank} {what}; the others are ended.\n")
    return 128 - status if status < 0 else status


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    """To the process and to those that it has started (the workers of its loaders)."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs: first by asking, then by force. None of their processes goes on."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        _send(process, signal.SIGTERM)
    until = time.monotonic() + _GRACE_SECONDS
    for process in running:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:  # noqa: PERF203
            _send(process, signal.SIGKILL)
            process.wait()
    for process in processes:
        _send(process, signal.SIGKILL)
