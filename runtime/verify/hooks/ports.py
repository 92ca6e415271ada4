"""Ports of a script's own: each run has free ones of its own, whatever number is written in the script."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

import torch.distributed as dist

COUNT = 8
"""How many a run has."""


def install(ports: Sequence[int]) -> None:
    """
    Let stores listen, and look for each other, at free ports from now on.

    A port that is written in the script (12355, ``tcp://127.0.0.1:23456``) may belong to another run on this machine:
    then this one would fail, or meet the other's processes.

    Args:
        ports: of the run. Every process of it takes the same one instead of the same number.
    """
    if not dist.is_available():
        return
    kind: Any = getattr(dist, "TCPStore")  # noqa: B009  (torch does not declare it)
    original = kind.__init__
    taken: dict[int, int] = {}

    def free(port: int) -> int:
        if not port or port in ports:
            return port
        candidate = ports[port % len(ports)]
        return candidate if taken.setdefault(candidate, port) == port else port

    @wraps(original)
    def begin(store: Any, host_name: str, port: int, *args: Any, **kwargs: Any) -> None:
        original(store, host_name, free(int(port)), *args, **kwargs)

    kind.__init__ = begin
