"""What every collective of this process goes through: it is noted, waited for, and heard to be over."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from ..errors import CollectiveError, CollectiveMismatch
from ..torch_internals import default_store
from .call_log import LoggedCall, Shown
from .watchdog import PERIOD, Watch


class _Call(threading.local):
    """The collective that this thread is in."""

    waiting = False
    """For an exchange, right now."""
    left: Callable[[], bool] | None = None
    """Completes the exchange that it is in, and says whether others were to follow; None when it is over."""


_CALL = _Call()


class _Here:
    """The watch of this process; it has one, as it has one process group."""

    watch: Watch | None = None
    forked = False
    """This process is a fork of the one that the watch is of."""
    group: object = None
    """Whose processes are watched."""


LISTENERS: list[Callable[[LoggedCall | None], None]] = []
"""Told of every collective of this process when it begins, and with None when it is over."""


def _in_a_fork() -> None:
    _Here.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_fork)


def begin() -> None:
    """Watch over the default process group, unless that is done already."""
    new = _Here.forked and _Here.group is not dist.group.WORLD  # in that of its parent a fork cannot speak
    if _Here.watch is None or new:
        store = default_store()
        _Here.watch = Watch(store, dist.get_rank(), dist.get_world_size())
        _Here.forked, _Here.group = False, dist.group.WORLD
        _Here.watch.start()


def end() -> Watch | None:
    """The process leaves: what the others still ask for is not coming any more."""
    watch, _Here.watch = _Here.watch, None
    _CALL.left = None
    if watch is None or _Here.forked:
        return None
    watch.stop()
    if watch.verdict is None:
        watch.ring.note("the end of the script")
        watch.tell_last()
    return watch


def note(kind: str, signature: str = "", shapes: Shown = ()) -> None:
    """
    This process is about to enter a collective. `done` ends it.

    Raises:
        CollectiveMismatch: the processes made different calls before.
        CollectiveError: this is a fork of a process of the job, or a handler of a signal in the middle of an exchange.
    """
    watch = _Here.watch
    if watch is not None:
        if _Here.forked:
            raise CollectiveError(
                f"{kind}: this process is a fork of a rank (a worker of a loader, or of multiprocessing) and cannot "
                "take part in a collective call. Return its result to the process that started it, and make the call "
                "there."
            )
        if _CALL.waiting:
            raise CollectiveError(
                f"{kind}: this process is already in a collective call. A signal handler should only call "
                "accelerator.set_trigger(); check it between two steps with accelerator.check_trigger()."
            )
        if watch.verdict is not None:
            watch.check()
        if _CALL.left is not None:
            _settle(watch)
        watch.ring.note(kind, signature, shapes)
        for listener in LISTENERS:
            listener(watch.ring.entries[-1])
        watch.busy = True


def say(kind: str, topic: str, value: Any) -> None:
    """
    State something that all processes, or some of them, state about the same topic. Nobody waits for anybody.

    Args:
        kind: of the statement; its judge is in `statements.JUDGES`.
        topic: what is compared with one another.
        value: plain, as JSON has it.
    """
    if _Here.watch is not None and not _Here.forked:
        _Here.watch.board.say(kind, topic, value)


def heed() -> None:
    """
    Hear what has come of statements.

    Raises:
        TorchliftError: some do not agree.
    """
    watch = _Here.watch
    if watch is not None:
        if watch.verdict is not None:
            watch.check()
        if watch.board.warnings:
            watch.board.warn()


def fail(text: str) -> None:
    """This process fails: let those that wait for it know with what, and where."""
    if _Here.watch is not None and not _Here.forked:
        _Here.watch.fail(text)


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
        "collective mismatch: the processes made different collective calls here. Every process must make the same "
        "calls, in the same order, and must not be interrupted during one."
    )


def explain() -> None:
    """
    A collective inside of torch has failed: perhaps because of a collective mismatch.

    Raises:
        CollectiveMismatch: they have.
        CollectiveError: one of them has ended.
    """
    if _Here.watch is not None:
        _Here.watch.hear()
        if _Here.watch.lost():
            raise _Here.watch.ended()


def explain_if_torn(error: BaseException) -> None:
    """
    A pass has ended in an error: if that has come up in a collective of torch, say what has caused it.

    Raises:
        CollectiveMismatch, CollectiveError: as `explain`.
    """
    if not isinstance(error, RuntimeError) or _Here.watch is None:
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None and trace.tb_frame.f_globals.get("__name__") == dist.distributed_c10d.__name__:
        explain()


def under_way() -> bool:
    """This thread has left a collective in its middle."""
    return _CALL.left is not None


def done() -> None:
    """The collective is over."""
    _CALL.left = None
    if _Here.watch is not None:
        _Here.watch.busy = False
    for listener in LISTENERS:
        listener(None)


def finish(work: Any, more: Callable[[], bool] = lambda: True) -> None:
    """
    Wait for an exchange of CPU tensors, but not for processes that are not coming.

    What interrupts it (a signal) leaves the collective in its middle. The next one waits for the exchange; when it was
    the last one of its collective, nothing is lost but its result.

    Args:
        work: the exchange, under way.
        more: asked when it is completed: whether the collective goes on, until `done`.

    Raises:
        CollectiveMismatch: the processes made different calls.
        CollectiveError: a process has ended, or does not come.
    """
    watch = _Here.watch
    if watch is None:
        work.wait()
        return
    _CALL.left = lambda: _completed(watch, work, more)
    if not _CALL.left():
        _CALL.left = None
    watch.busy = False


def _completed(watch: Watch, work: Any, more: Callable[[], bool]) -> bool:
    _CALL.waiting = True
    try:
        _wait(watch, work)
    finally:
        _CALL.waiting = False
    return more()


def _wait(watch: Watch, work: Any) -> None:
    start = time.monotonic()
    gone: list[int] = []
    while True:
        try:
            work.wait(PERIOD)
        except RuntimeError as error:
            watch.check()
            timed_out = "timed out" in str(error).lower()
            if timed_out and (not work.is_completed() or work.is_success()):  # completed right after the wait had ended
                gone, before = watch.gone(), gone
                if gone and gone == before:  # what they have sent in time would have come by now
                    watch.hear()
                    raise watch.ended() from error
                continue
            if not work.is_completed():  # raised by a handler of a signal
                raise
            waited = time.monotonic() - start
            watch.hear()
            raise (watch.late(waited) if timed_out else watch.ended()) from error
        return


def _settle(watch: Watch) -> None:
    """
    The collective before this one was left in its middle.

    Raises:
        CollectiveMismatch: others have finished it.
    """
    torn = _CALL.left is not None and _CALL.left()
    _CALL.left = None
    if torn:
        watch.ring.leave()
        watch.hear()
