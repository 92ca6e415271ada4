"""Which collectives a rank makes, when, and from which line of the script."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist

from ...process import watched_calls
from ...process.call_log import LoggedCall
from .events import EventLog

_NAMES = (
    "all_gather all_gather_into_tensor all_gather_coalesced all_gather_object all_reduce all_reduce_coalesced "
    "all_to_all all_to_all_single barrier broadcast broadcast_object_list gather gather_object monitored_barrier "
    "reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list"
)
_BETWEEN_TWO = "send recv isend irecv"


class CollectiveCalls:
    """
    Records what all ranks do together, whether our runtime asks for it, another one, or the script itself.

    Args:
        log: of this process.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._depth = 0
        """Calls of which these are parts."""

    def install(self) -> None:
        """Watch from now on."""
        watched_calls.LISTENERS.append(self._ours)
        if not dist.is_available():
            return
        home = dist.distributed_c10d
        for name in (_NAMES + " " + _BETWEEN_TWO).split():
            original = getattr(home, name, None)
            if original is not None:
                watched = self._watched(name, original)
                for module in (home, dist):
                    if getattr(module, name, None) is original:
                        setattr(module, name, watched)

    def _ours(self, call: LoggedCall | None) -> None:
        """A collective of our runtime begins; None: it is over. What it is made of is not told."""
        if call is None:
            if self._depth:
                self._depth = 0
                self._log.write("done")
            return
        self._depth = 1
        self._begin(call.describe(), self._log.line(), True)

    def _begin(self, name: str, at: str, of_all: bool) -> None:
        self._log.moves += 1
        self._log.clock += of_all
        self._log.write("collective", op=name, at=at, all=of_all)

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return original(*args, **kwargs)
            self._depth += 1
            of_all = name not in _BETWEEN_TWO and _is_of_all(args, kwargs)
            self._begin(f"{name}{_shape(args)}", self._log.line(), of_all)
            try:
                return original(*args, **kwargs)
            finally:
                self._depth = 0
                self._log.write("done")

        return call


def _is_of_all(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Not of a group of some ranks."""
    groups = [one for one in (*args, *kwargs.values()) if isinstance(one, dist.ProcessGroup)]
    return all(one is dist.group.WORLD for one in groups)


def _shape(args: tuple[Any, ...]) -> str:
    for argument in args:
        if isinstance(argument, torch.Tensor):
            return f" of {list(argument.shape)}"
    return ""
