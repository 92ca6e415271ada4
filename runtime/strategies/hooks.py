"""Compressing gradients on their way: torch's communication hooks, on the private DDP of an engine."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from ..config.handlers import DistributedDataParallelKwargs


class Compression:
    """
    The hook that was asked for. Its state lives as long as the engine, whose DDP may be built anew.

    Raises:
        MixedUseError: the device has no such hook.
    """

    def __init__(self, options: DistributedDataParallelKwargs, device: torch.device) -> None:
        self._state, self._hook = options.compression(device.type == "cpu")

    def on(self, parallel: DistributedDataParallel) -> None:
        """Register the hook, if there is one."""
        if self._hook is not None:
            parallel.register_comm_hook(self._state, self._hook)
