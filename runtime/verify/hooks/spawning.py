"""
`mp.spawn` and `start_processes` of an original: its processes are the run's own, where they are traced.

N processes of the run go through the script up to the call, and each runs the function with its own rank, as a fork
there would. What is around the call is done by the process that starts the others: the script's doings there are
recorded on rank 0 alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch.multiprocessing

from .recorder import Ended, Recorder

UNSEEN = -1
"""Processes that are started through a name that the script's text does not show."""


def install(recorder: Recorder, processes: int, seen: bool) -> None:
    """
    Run here what the script starts processes for, from now on.

    Args:
        recorder: of the trace.
        processes: of the run. A script that starts another number of them is ended, and its trace says so.
        seen: it was known that the script starts processes, so that none was launched as by torchrun.
    """
    recorder.muted = seen and recorder.rank > 0

    def spawn(
        fn: Callable[..., Any], args: Any = (), nprocs: int = 1, join: bool = True, *more: Any, **named: Any
    ) -> Any:
        recorder.write("spawned", n=nprocs if seen else UNSEEN)
        if not seen or nprocs != processes:
            raise Ended
        muted, recorder.muted = recorder.muted, False
        try:
            fn(recorder.rank, *args)
        finally:
            recorder.muted = muted
        return None if join else _Over()

    home = sys.modules["torch.multiprocessing.spawn"]
    for module in (torch.multiprocessing, home):
        for name in ("spawn", "start_processes"):
            setattr(module, name, spawn)


class _Over:
    """The context of processes that have come to their end."""

    def join(self, *args: Any, **kwargs: Any) -> bool:
        """There is nothing to wait for."""
        return True
