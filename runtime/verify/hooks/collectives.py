"""Which collectives a process enters, and from which line of the script."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist

from .recorder import Recorder

_NAMES = (
    "all_gather all_gather_into_tensor all_gather_single all_gather_coalesced all_gather_object all_reduce "
    "all_reduce_coalesced all_to_all all_to_all_single barrier broadcast broadcast_object_list gather gather_object "
    "irecv isend monitored_barrier recv reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list send"
)


def install(recorder: Recorder) -> None:
    """Record collective calls from now on; one that is made inside another is part of it."""
    if not dist.is_available():
        return
    depth = [0]
    home = dist.distributed_c10d
    _watch_group(recorder)
    _watch_leaving(recorder)
    for name in _NAMES.split():
        original = getattr(home, name, None) or getattr(dist, name, None)
        if original is None:
            continue
        watched = _watched(name, original, recorder, depth)
        for module in (home, dist):
            if getattr(module, name, None) is original:
                setattr(module, name, watched)


def _watch_group(recorder: Recorder) -> None:
    """Record how many processes find each other."""
    original = dist.init_process_group

    @wraps(original)
    def begin(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        recorder.write("group", size=dist.get_world_size())
        return result

    for module in (dist.distributed_c10d, dist):
        setattr(module, "init_process_group", begin)  # noqa: B010


def _watch_leaving(recorder: Recorder) -> None:
    """
    Record when a process leaves its group, and let no wrapper be the last to hold it.

    The reducer of a DistributedDataParallel ends a group of gloo while it holds the interpreter's lock: it joins a
    thread that may be waiting for that lock, to let go of the tensors of the last collective call (seen with torch
    2.13, after a barrier). Here a group lives as long as its process.
    """
    original = dist.destroy_process_group
    kept: list[Any] = []

    @wraps(original)
    def leave(*args: Any, **kwargs: Any) -> None:
        kept.extend(dist.distributed_c10d._world.pg_map)
        original(*args, **kwargs)
        if not dist.is_initialized():
            recorder.leave("ungroup")

    for module in (dist.distributed_c10d, dist):
        setattr(module, "destroy_process_group", leave)  # noqa: B010


def _watched(name: str, original: Callable[..., Any], recorder: Recorder, depth: list[int]) -> Callable[..., Any]:
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if depth[0] == 0:
            recorder.write("coll", op=name, shape=_shape(args), at=recorder.line())
        depth[0] += 1
        try:
            result = original(*args, **kwargs)
        finally:
            depth[0] -= 1
        if depth[0] == 0:
            recorder.under_way = result if kwargs.get("async_op") else None
            if recorder.under_way is None:  # of one that is under way the next event tells the end
                recorder.write("done")
        return result

    return call


def _shape(args: tuple[Any, ...]) -> list[int] | None:
    for argument in args:
        if isinstance(argument, torch.Tensor):
            return list(argument.shape)
    return None
