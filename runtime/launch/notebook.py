"""
Processes for a function instead of a script: in notebooks, and for tests.

They are forks, so that they know what the notebook has defined, and they know each other.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..config.environment import read_environment
from ..config.settings import parse_precision
from ..config.variables import set_for_a_while, set_where_unset
from ..errors import LaunchError, NotAvailableYet, UnknownWordError
from ..process.system import get_free_port
from ..process.topology import topology

_RENDEZVOUS = ("static", "c10d")
_ASKING = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""With it torch asks the driver's library whether there is a GPU. Otherwise the question alone begins with CUDA, and no
fork of this process can use it."""

set_where_unset(_ASKING)  # at import: cells between this one and the training ask `torch.cuda.is_available()`


def notebook_launcher(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    num_processes: int | None = None,
    mixed_precision: str = "no",
    use_port: int | str = 0,
    master_addr: str = "127.0.0.1",
    node_rank: int = 0,
    num_nodes: int = 1,
    rdzv_backend: str = "static",
    rdzv_endpoint: str = "",
    rdzv_conf: dict[str, Any] | None = None,
    rdzv_id: str = "none",
    max_restarts: int = 0,
    monitor_interval: float = 0.1,
    log_line_prefix_template: str | None = None,
) -> Any:
    """
    Run a training function on several processes of this machine, from a notebook.

    The accelerator is made inside the function, and nothing may have used a GPU before. With one process the function
    runs right here. So it does by torch_xla, where one process drives all devices, and where a launcher has started
    this process as one of several: of a notebook that was exported to a script.

    Returns what the function returned in the main process, a copy with its tensors on the CPU: ``losses =
    notebook_launcher(train)``. Of several machines, only that of the main process gets it, and the others None. What
    cannot be pickled is not returned either, and a warning says so. In Accelerate, nothing is ever returned.

    Args:
        function: the training function.
        args: its arguments.
        num_processes: on this machine; the number of accelerators when None. By torch_xla it is not asked for.
        mixed_precision: "no", "bf16", "fp16", "fp8" or "int8", for accelerators that are told nothing else.
        use_port: where the processes meet; 0 takes a free port.
        master_addr: where machine 0 is reached.
        node_rank: the number of this machine.
        num_nodes: how many machines; then `use_port` must be a port, the same on all.
        rdzv_backend, rdzv_endpoint, rdzv_conf, rdzv_id: "static" or "c10d"; without effect on one machine, where
            processes find each other anyway. On several machines only "static" is available.
        max_restarts: start all again when one has failed, so many times.
        monitor_interval, log_line_prefix_template: without effect.

    Raises:
        UnknownWordError: no such precision; a ValueError.
        LaunchError: an accelerator has been made already, or the number of processes is not known; a ValueError, too.
        ChildFailedError: of torch, as in Accelerate: the function failed in a process; the message holds its traceback.
    """
    precision = str(parse_precision(mixed_precision))
    if rdzv_backend not in _RENDEZVOUS:
        raise UnknownWordError("rdzv_backend", rdzv_backend, list(_RENDEZVOUS))
    if num_nodes > 1 and (rdzv_backend != "static" or rdzv_endpoint or rdzv_conf or rdzv_id != "none"):
        raise NotAvailableYet(
            "notebook_launcher on several machines with a rendezvous of torch",
            "Leave out the rdzv arguments, and give master_addr and use_port.",
        )
    environment = read_environment()
    started = topology(environment).distributed
    if not started and num_nodes == 1 and not environment.cpu:
        from .. import torch_spmd

        started = torch_spmd.is_wanted(environment.device, environment.pjrt_device)  # one process for all devices
    with set_for_a_while(_ASKING):
        count = 1 if started else _count(num_processes)
    if started or (count == 1 and num_nodes == 1):
        with set_for_a_while({"TORCHLIFT_MIXED_PRECISION": precision}):
            return function(*args)
    if num_nodes > 1 and int(use_port) == 0:
        raise LaunchError("several machines need use_port: a port of machine 0, the same on all.")
    _nothing_begun()
    settings = {"TORCHLIFT_MIXED_PRECISION": precision}
    failure: Any = None
    with TemporaryDirectory(prefix="torchlift-") as folder:
        returned = Path(folder, "returned.pt")
        run = _Returning(function, args, returned)
        for restart in range(max(max_restarts, 0) + 1):
            failure = _start(run, (), count, settings, master_addr, int(use_port), node_rank, num_nodes, restart)
            if failure is None:
                return _read(returned)
    raise _child_failed(getattr(function, "__name__", repr(function)), failure, node_rank * count)


def debug_launcher(function: Callable[..., Any], args: tuple[Any, ...] = (), num_processes: int = 2) -> None:
    """
    Run a function on several processes of the CPU, to look for mistakes.

    Args:
        function: what to run.
        args: its arguments.
        num_processes: how many.

    Raises:
        LaunchError: an accelerator has been made already.
        ProcessRaisedException: the function failed in a process; the message holds its traceback.
    """
    if num_processes < 1:
        raise LaunchError(f"num_processes is {num_processes}; it must be 1 or more.")
    _nothing_begun()
    settings = {"TORCHLIFT_CPU": "1", "TORCHLIFT_MIXED_PRECISION": "no"}
    failure = _start(function, args, num_processes, settings, "127.0.0.1", 0, 0, 1, 0)
    if failure is not None:
        raise failure


class _Returning:
    """A function with its arguments that writes what it returned to a file, in the main process."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], file: Path) -> None:
        self.function = function
        self.args = args
        self.file = file

    def __call__(self) -> None:
        main = topology(read_environment()).rank == 0
        if main:
            self.file.unlink(missing_ok=True)  # of a start that failed
        given = self.function(*self.args)
        if given is None or not main:
            return
        import torch

        try:
            torch.save(given, self.file)
        except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as why:
            self.file.unlink(missing_ok=True)
            name = getattr(self.function, "__name__", repr(self.function))
            warnings.warn(
                f"what {name} returned ({type(given).__name__}) cannot be sent to the notebook, which gets None: "
                f"{why}. Return numbers, tensors, lists and dictionaries of them, and save the rest to files.",
                stacklevel=2,
            )


def _read(file: Path) -> Any:
    """What the main process has written; None if nothing."""
    import torch

    if not file.exists():
        return None
    return torch.load(file, map_location="cpu", weights_only=False)  # our own process has written it


def _count(asked: int | None) -> int:
    if asked is not None:
        if asked < 1:
            raise LaunchError(f"num_processes is {asked}; it must be 1 or more.")
        return asked
    from ..device.kinds import current

    count = current().count()
    if not count:
        raise LaunchError(
            "there is no accelerator here, so the number of processes is not known: notebook_launcher(..., "
            "num_processes=2)."
        )
    return count


def _nothing_begun() -> None:
    from ..device.kinds import current
    from ..process.state import PartialState

    if PartialState.made_in == os.getpid():
        raise LaunchError(
            "an Accelerator (or PartialState) already exists in this process, so processes cannot be started from "
            "here: it should only be created inside your training function. Restart the notebook, and make sure that "
            "no cell creates one."
        )
    with set_for_a_while(_ASKING):
        device = current()
        begun, lost = device.begun(), device.lost_to_forks()
    if begun:
        raise LaunchError(
            "this process already uses a device, so processes started from here could not use it. Restart the "
            "notebook, and use devices only inside your training function."
        )
    if lost:
        raise LaunchError(
            "a cell, or a module that it imports, has asked for a device (torch.cuda.is_available()) before "
            "notebook_launcher was imported, so processes started from here could not use one. Restart the notebook, "
            "and import notebook_launcher first: from torchlift.runtime import notebook_launcher."
        )


def _start(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    count: int,
    settings: dict[str, str],
    address: str,
    port: int,
    node_rank: int,
    num_nodes: int,
    restart: int,
) -> Any:
    """Start processes and wait for them. What torch raises when one has failed; None when all are done."""
    from torch.multiprocessing.spawn import ProcessException, start_processes

    place = {
        "WORLD_SIZE": str(count * num_nodes),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port or get_free_port()),
        "TORCHELASTIC_RESTART_COUNT": str(restart),
    }
    with set_for_a_while({**settings, **place}):
        try:
            start_processes(run_here, args=(function, args, node_rank * count), nprocs=count, start_method="fork")  # type: ignore[no-untyped-call]
        except ProcessException as failure:
            return failure
    return None


def _child_failed(name: str, failure: Any, first: int) -> Exception:
    """What torch's elastic launcher raises of a process that failed."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    code = getattr(failure, "exit_code", 1)
    told = ProcessFailure(failure.error_index, failure.error_pid, code, "")
    told.message = str(failure)
    return ChildFailedError(name, {first + failure.error_index: told})


def run_here(local_rank: int, function: Callable[..., Any], args: tuple[Any, ...], first: int) -> None:
    """What a new process does."""
    import torch

    from ..process import group

    # GNU OpenMP hangs in a fork of a process that has used its threads: one thread uses none of them.
    torch.set_num_threads(1)
    with set_for_a_while({"RANK": str(first + local_rank), "LOCAL_RANK": str(local_rank)}):
        try:
            function(*args)
        except BaseException:
            group.note_failure()
            raise
        finally:
            group.leave()  # such a process ends without calling what is registered for its exit
