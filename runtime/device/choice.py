"""Which device a process computes on."""

from __future__ import annotations

import torch

from .. import torch_spmd
from ..errors import DeviceError, MixedUseError, UnknownWordError
from ..types import DistributedType
from .kinds import accelerators, current, kind_of

VARIABLES = "TORCHLIFT_DEVICE (or ACCELERATE_TORCH_DEVICE)"
_CPU = torch.device("cpu")


def choose_device(local_rank: int, cpu: bool, asked: str | None = None, pjrt: str | None = None) -> torch.device:
    """
    The accelerator with the number of this process on its machine; the CPU where there is none or none is wanted.

    Args:
        local_rank: this number.
        cpu: none is wanted.
        asked: what the environment asks for: a type of devices, of which the one with this number is meant, or one
            device of it ("name:1").
        pjrt: the variable PJRT_DEVICE, by which torch_xla is asked for.

    Raises:
        UnknownWordError: torch knows no such device.
        DeviceError: there is none here.
        MixedUseError: an accelerator and the CPU are both asked for.
    """
    if not cpu and torch_spmd.is_wanted(asked, pjrt):
        return torch_spmd.start(pjrt)
    if asked is not None:
        device = _asked(asked, local_rank, cpu)
    else:
        device = _CPU if cpu else current().of_process(local_rank)
    kind_of(device).select(device)
    return device


def _asked(word: str, local_rank: int, cpu: bool) -> torch.device:
    try:
        device = torch.device(word)
    except RuntimeError:
        name = word.partition(":")[0]
        if name in accelerators():
            raise DeviceError(f"{VARIABLES} is {word!r}, but {_missing(name)}") from None
        here = list(dict.fromkeys(["cpu", current().name]))
        raise UnknownWordError(f"the environment variable {VARIABLES}", word, here) from None
    kind = kind_of(device)
    if kind.is_cpu:
        return device
    if cpu:
        raise MixedUseError(
            f"{VARIABLES} is {word!r}, and the CPU is asked for as well (cpu=True, --cpu or ACCELERATE_USE_CPU). "
            "Leave out one of the two."
        )
    if not kind.available():
        raise DeviceError(f"{VARIABLES} is {word!r}, but {_missing(kind.name)}")
    if device.index is None:
        return kind.of_process(local_rank)
    if device.index >= max(kind.count(), 1):
        raise DeviceError(
            f"{VARIABLES} is {word!r}, but this process sees {kind.count()} of them: the last one is "
            f"{kind.name}:{kind.count() - 1}."
        )
    return device


def _missing(name: str) -> str:
    """Why there is no such device here, and what to do."""
    if name not in accelerators():
        return "it is no device that computes here: choose another, or leave the variable out."
    package = kind_of(name).package
    installed = f"Install the package {package}" if package else "Install a build of torch for it"
    uses = "" if current().is_cpu else f" (torch uses {current().name})"
    return f"torch finds none here{uses}. {installed}, or leave the variable out."


def distributed_type(world_size: int, device: torch.device) -> DistributedType:
    """The word for `world_size` processes on such devices."""
    kind = kind_of(device)
    return DistributedType.NO if world_size == 1 and not kind.drives_all else kind.word
