"""Compressing gradients on their way: torch's communication hooks, on the private DDP of an engine."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ..config.handlers import DistributedDataParallelKwargs
from ..errors import MixedUseError
from ..types import DDPCommunicationHookType as Hook


class Compression:
    """
    The hook that was asked for. Its state lives as long as the engine, whose DDP may be built anew.

    Raises:
        MixedUseError: this build of torch, or the device, has no such hook.
    """

    def __init__(self, options: DistributedDataParallelKwargs, device: torch.device) -> None:
        self._hook: Any = None
        self._state: Any = None
        if device.type == "cpu" and Hook.BF16 in (options.comm_hook, options.comm_wrapper):
            raise MixedUseError("gloo cannot add bf16 numbers: use comm_hook='fp16', or none, on the CPU.")
        if options.comm_hook == Hook.BATCHED_POWER_SGD and device.type == "cpu":
            raise MixedUseError("comm_hook='batched_power_sgd' needs an accelerator: use 'power_sgd' on the CPU.")
        if options.comm_hook != Hook.NO:
            self._choose(options)

    def _choose(self, options: DistributedDataParallelKwargs) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        plain = {Hook.FP16: default_hooks.fp16_compress_hook, Hook.BF16: default_hooks.bf16_compress_hook}
        power = {
            Hook.POWER_SGD: powerSGD_hook.powerSGD_hook,
            Hook.BATCHED_POWER_SGD: powerSGD_hook.batched_powerSGD_hook,
        }
        around: dict[Hook, Any] = {
            Hook.FP16: default_hooks.fp16_compress_wrapper,
            Hook.BF16: default_hooks.bf16_compress_wrapper,
        }
        if options.comm_hook in power:
            self._state = powerSGD_hook.PowerSGDState(process_group=None, **options.comm_state_option)
            self._hook = power[options.comm_hook]
        else:
            self._hook = plain[options.comm_hook]
        if options.comm_wrapper in around:
            self._hook = around[options.comm_wrapper](self._hook)

    def on(self, parallel: DistributedDataParallel) -> None:
        """Register the hook, if there is one."""
        if self._hook is not None:
            parallel.register_comm_hook(self._state, self._hook)
