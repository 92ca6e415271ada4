"""Compressing gradients on their way: torch's communication hooks, on the private DDP of an engine."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ..config.handlers import DistributedDataParallelKwargs
from ..torch_internals import counts_calls


class Compression:
    """
    The hook that was asked for. Its state lives as long as the engine, whose DDP may be built anew.

    Raises:
        MixedUseError: the device has no such hook.
    """

    def __init__(self, options: DistributedDataParallelKwargs, device: torch.device) -> None:
        self._state, self.hook = options.compression(device.type == "cpu")
        if self.hook is None and not counts_calls():
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

            self.hook = allreduce_hook  # what the reducer does by itself, but counted here
        self.calls = 0
        """How often the hook has run."""

    def on(self, parallel: DistributedDataParallel) -> None:
        """Register the hook, if there is one."""
        if self.hook is not None:
            parallel.register_comm_hook(None, lambda _, bucket: self.run(bucket))

    def run(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Exchange what is in a bucket."""
        self.calls += 1
        done: torch.futures.Future[torch.Tensor] = self.hook(self._state, bucket)
        return done
