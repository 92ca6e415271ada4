"""Which device a process computes on."""

from __future__ import annotations

import torch

from ..types import DistributedType

_WORD_OF_DEVICE = {
    "cpu": DistributedType.MULTI_CPU,
    "cuda": DistributedType.MULTI_GPU,
    "xpu": DistributedType.MULTI_XPU,
    "npu": DistributedType.MULTI_NPU,
    "mlu": DistributedType.MULTI_MLU,
    "musa": DistributedType.MULTI_MUSA,
    "hpu": DistributedType.MULTI_HPU,
}


def choose_device(local_rank: int, cpu: bool) -> torch.device:
    """The accelerator with the number of this process on its machine; the CPU where there is none or none is wanted."""
    if cpu or not torch.accelerator.is_available():
        return torch.device("cpu")
    kind = torch.accelerator.current_accelerator()
    if kind is None:
        return torch.device("cpu")
    count = torch.accelerator.device_count()
    device = torch.device(kind.type, local_rank % count) if count > 1 or kind.type != "mps" else torch.device(kind.type)
    if device.index is not None:
        torch.accelerator.set_device_index(device.index)
    return device


def distributed_type(world_size: int, device: torch.device) -> DistributedType:
    """The word for `world_size` processes on such devices."""
    if world_size == 1:
        return DistributedType.NO
    return _WORD_OF_DEVICE.get(device.type, DistributedType.MULTI_ACCELERATOR)
