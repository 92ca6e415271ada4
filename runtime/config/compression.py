"""Which of torch's communication hooks compresses gradients on their way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from ..errors import MixedUseError
from ..types import DDPCommunicationHookType as Hook


def hook_of(word: Hook, wrapper: Hook, settings: Mapping[str, Any], on_cpu: bool) -> tuple[Any, Any]:
    """
    The state and the hook that were asked for; None and None where gradients travel as they are.

    Args:
        word: which hook.
        wrapper: fp16 or bf16 around it.
        settings: of the power_sgd hooks.
        on_cpu: gradients travel by gloo.

    Raises:
        MixedUseError: the CPU has no such hook.
    """
    if on_cpu and wrapper == Hook.BF16:
        raise MixedUseError("gloo cannot add bf16 numbers: on the CPU use comm_wrapper='fp16', or no wrapper.")
    if on_cpu and word == Hook.BATCHED_POWER_SGD:
        raise MixedUseError("comm_hook='batched_power_sgd' needs an accelerator: use 'power_sgd' on the CPU.")
    if word == Hook.NO:
        return None, None
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    plain = {
        Hook.FP16: default_hooks.fp16_compress_hook,
        Hook.BF16: bf16_by_hand if on_cpu else default_hooks.bf16_compress_hook,
    }
    power = {Hook.POWER_SGD: powerSGD_hook.powerSGD_hook, Hook.BATCHED_POWER_SGD: powerSGD_hook.batched_powerSGD_hook}
    around: dict[Hook, Any] = {
        Hook.FP16: default_hooks.fp16_compress_wrapper,
        Hook.BF16: default_hooks.bf16_compress_wrapper,
    }
    state: Any = None
    if word in power:
        state = powerSGD_hook.PowerSGDState(process_group=None, **settings)
        hook: Any = power[word]
    else:
        hook = plain[word]
    if wrapper in around:
        hook = around[wrapper](hook)
    if word in power and on_cpu:
        hook = in_turn(hook)
    return state, hook


def in_turn(hook: Any) -> Any:
    """
    A hook that has done all its exchanges before the next bucket begins with its own.

    PowerSGD starts the second and the third of them when the one before is over. On gloo that happens on a thread of
    its own, so that the processes could exchange buckets in different orders: "8 vs 4" bytes, and an abort.
    """

    def finished(state, bucket):  # type: ignore[no-untyped-def]  # see bf16_by_hand
        future = hook(state, bucket)
        future.wait()
        return future

    return finished


def bf16_by_hand(_state, bucket):  # type: ignore[no-untyped-def]  # torch refuses annotations that are words
    """What travels is bf16. gloo carries its bytes and cannot add them: that is done here, in the bucket's own type."""
    whole: torch.Tensor = bucket.buffer()
    small = whole.to(torch.bfloat16)
    rows = small.new_empty((dist.get_world_size(), small.numel()))
    work = dist.all_gather(list(rows.view(torch.uint8)), small.view(torch.uint8), async_op=True)

    def average(_done: Any) -> torch.Tensor:
        return whole.copy_(rows.to(whole.dtype).mean(0))

    return work.get_future().then(average)
