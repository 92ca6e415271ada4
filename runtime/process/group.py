"""The process group: started once, left in order."""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import sys
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from ..device.kinds import DeviceKind, kind_of
from ..errors import DeviceError, TopologyError, TorchliftError
from ..torch_internals import default_store
from . import watched_calls
from .call_log import LIBRARIES
from .topology import Topology
from .watchdog import Watch

_LEAVING_SECONDS = 10.0
"""How long a process that is done waits for the others before it leaves anyway."""
_DYING_SECONDS = 3.0
"""How long a process that has failed may take to free what it holds."""
_POLL_SECONDS = 0.01
_LOOK_EVERY = 20
"""So many times it is asked who has come, between two comparisons of the processes."""
_LINE = 300
"""How much of an error the others are told."""
_LEFT = "torchlift/left"
_FAILED = "torchlift/failed"

log = logging.getLogger(__name__)


class _Exit:
    """How this process comes to its end."""

    failed = False
    ours_in: int | None = None
    """The process that joined the group by `start`; a fork of it must not leave in its name."""
    joined = 0
    """How often this process has joined a group."""
    nowhere: TextIO | None = None
    """Where a timer that ends it writes."""


def start(
    topology: Topology,
    device: torch.device,
    timeout: timedelta | None = None,
    backend: str | None = None,
    init_method: str | None = None,
) -> None:
    """
    Join the process group of the job, unless the script has done so already, and watch over it.

    Args:
        topology: the place of this process.
        device: CPU tensors travel by gloo; those of an accelerator by the back end that torch names for it.
        timeout: of collectives; torch's own when None.
        backend: instead of these.
        init_method: where the processes meet, as torch writes it; what the environment says when None.

    Raises:
        TopologyError: this build of torch cannot connect processes.
        DeviceError: it cannot connect those of such devices, or several processes have one of them.
    """
    if not topology.distributed:
        return
    if not dist.is_available():
        raise TopologyError(
            f"WORLD_SIZE is {topology.world_size}, but this build of torch has no torch.distributed. "
            "Install a build that has it, or start one process."
        )
    if not dist.is_initialized():
        _join(topology, device, backend, timeout, init_method)
        _Exit.ours_in = os.getpid()
        _watch_for_failure()
        atexit.register(_leave_at_the_end)
    if dist.get_world_size() > 1:
        watched_calls.begin()


def _backend(device: torch.device, wanted: str | None) -> str:
    """Gloo for CPU tensors, and what the device needs for its own."""
    return wanted if wanted and wanted not in ("nccl", "gloo") else kind_of(device).backend()


def _join(
    topology: Topology, device: torch.device, wanted: str | None, timeout: timedelta | None, init_method: str | None
) -> None:
    """
    A restarted job gets keys of its own: the store may still hold the addresses of processes that have died. So does
    one that has left, and trains again.
    """
    backend, rank, size = _backend(device, wanted), topology.rank, topology.world_size
    meet = init_method or topology.meet
    if meet.startswith("env://"):
        store, _, _ = next(rendezvous(meet, rank, size))
    else:
        store, _, _ = next(rendezvous(f"{meet}{'&' if '?' in meet else '?'}rank={rank}&world_size={size}"))
    own = PrefixStore(f"torchlift/{topology.restart}/{_Exit.joined}", store)
    _Exit.joined += 1
    kind = kind_of(device)
    if kind.one_process and topology.local_world_size > kind.count() and backend == kind.backend():
        _one_each(own, kind, device)
    dist.init_process_group(backend=backend, store=own, rank=rank, world_size=size, timeout=timeout)


def _one_each(store: Store, kind: DeviceKind, device: torch.device) -> None:
    """
    No two processes have one device, where their back end refuses that: it would say so in words of its own, or hang.

    That a process sees fewer devices than there are processes on its machine says nothing yet: each may see another.
    """
    identity, count = kind.identity(device), kind.count()
    if identity is not None and store.add(f"device/{identity}", 1) > 1:
        raise DeviceError(
            f"{device} of this machine is that of another process, too, and {kind.backend().rpartition(':')[2]} "
            f"connects only processes that have one each. Start as many as there are (--num-processes {count}), or let "
            f'them share it, for a trial: InitProcessGroupKwargs(backend="cpu:gloo,{device.type}:gloo").'
        )


def backend() -> str | None:
    """What tensors travel by; None for one process."""
    return str(dist.get_backend()) if dist.is_available() and dist.is_initialized() else None


def note_failure() -> None:
    """This process has failed: leaving waits for nobody. For processes whose end `sys.excepthook` does not see."""
    _Exit.failed = True


def _watch_for_failure() -> None:
    """Remember an uncaught exception, so that a crashing process waits for nobody."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _Exit.failed = True
        previous(kind, error, trace)
        watched_calls.fail(_described(error, trace))

    sys.excepthook = hook


def _described(error: BaseException, trace: TracebackType | None) -> str:
    """In one line: what was raised, and the innermost line of the script."""
    line = traceback.format_exception_only(error)[-1].strip()
    places = [(frame.f_code.co_filename, number) for frame, number in traceback.walk_tb(trace)]
    own = [place for place in places if not place[0].startswith(LIBRARIES)] or places
    return f"{line[:_LINE]}, at {own[-1][0]}:{own[-1][1]}." if own else f"{line[:_LINE]}."


def left() -> bool:
    """This process was in a group of its job, and has left it in order."""
    return _Exit.joined > 0 and _Exit.ours_in is None and not dist.is_initialized()


def leave() -> None:
    """
    Leave the process group: count down in the store until all are here (bounded), then destroy it.

    After an uncaught exception nobody is waited for. Calling it twice, or without a group, does nothing.

    Raises:
        CollectiveMismatch: the last collectives of the processes went past one another.
        TorchliftError: what the monitor has found since the last step.
    """
    if _Exit.ours_in != os.getpid() or not dist.is_initialized():
        return
    _Exit.ours_in = None
    store = default_store()
    waited_for = watched_calls.under_way()
    parted: TorchliftError | None = None
    try:
        watching = watched_calls.end()
        if watching is not None and watching.verdict is not None:
            store.set(_FAILED, "1")  # who is leaving waits no more, and hears why
            unheard = watching.unheard()
            parted = None if _Exit.failed else unheard
            _Exit.failed = True
        if _Exit.failed:
            store.set(_FAILED, "1")
        else:
            _count_down(store, dist.get_world_size(), watching)
    except TorchliftError as verdict:
        parted = verdict
        _Exit.failed = True
    except (RuntimeError, ValueError, OSError) as error:  # the store is gone: so are the others
        log.debug("the process group could not be closed together with the other processes: %s", error)
    if _Exit.failed:
        _destroy_or_die(waited_for)
    else:
        dist.destroy_process_group()
    if parted is not None:
        raise parted


def _leave_at_the_end() -> None:
    """
    Leave when the interpreter ends. What is raised now would be shown, and the exit status be 0 all the same: the
    launcher, and whoever looks at it, would take the job for a success.
    """
    try:
        leave()
    except TorchliftError as verdict:
        sys.excepthook(type(verdict), verdict, verdict.__traceback__)
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def _destroy_or_die(waited_for: bool) -> None:
    """
    Destroy the group after a failure, which may wait for a collective that is still under way.

    Args:
        waited_for: there is one. Then the back end waits for it when the interpreter frees what it holds, and lets no
            thread of Python run meanwhile. A timer that needs none ends the process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if waited_for:
        _Exit.nowhere = Path(os.devnull).open("w")  # noqa: SIM115 as long as the process lives
        faulthandler.dump_traceback_later(_DYING_SECONDS, exit=True, file=_Exit.nowhere)
        dist.destroy_process_group()
        return
    thread = threading.Thread(target=dist.destroy_process_group, daemon=True)
    thread.start()
    thread.join(_DYING_SECONDS)
    if thread.is_alive():
        os._exit(1)


def _count_down(store: Any, world_size: int, watching: Watch | None) -> None:
    left = store.add(_LEFT, 1)
    until = time.monotonic() + _LEAVING_SECONDS
    looks = 0
    while left < world_size and time.monotonic() < until and not store.check([_FAILED]):
        looks += 1
        if watching is not None and looks % _LOOK_EVERY == 0:
            watching.look()  # somebody may wait for this process, in a collective that it does not come to
        time.sleep(_POLL_SECONDS)
        left = store.add(_LEFT, 0)
    if watching is not None and left >= world_size:
        watching.last_look()
    elif watching is not None:
        watching.last_word()
    if dist.get_rank() == 0:  # the store lives in rank 0: let the others read the last count
        until = min(until, time.monotonic() + 1.0)
        store.add(f"{_LEFT}/read", 1)
        while store.add(f"{_LEFT}/read", 0) < left and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
    else:
        store.add(f"{_LEFT}/read", 1)


def wait_for_everyone() -> None:
    """
    Return when every process of the group has come here.

    Raises:
        CollectiveMismatch: some of them are on another way.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        watched_calls.note("wait_for_everyone")
        if dist.get_backend() == "gloo":
            watched_calls.finish(dist.barrier(async_op=True), lambda: False)
        else:
            dist.barrier()
        watched_calls.done()
