"""The random numbers of one process, as plain values that can be saved and loaded safely."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

from ..device.kinds import kind_of
from ..process.rng import part_noise


def random_states(device: torch.device) -> dict[str, Any]:
    """The states of python, numpy (when it is loaded), torch, and the accelerator."""
    states: dict[str, Any] = {"random_state": random.getstate(), "torch_manual_seed": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy_random_seed"] = (name, torch.from_numpy(keys.astype("int64")), *rest)
    of_devices = kind_of(device).random_states()
    if of_devices:
        states[_key(device)] = of_devices
    return states


def restore_random_states(states: dict[str, Any], device: torch.device, noise: int = 0) -> None:
    """
    Continue where `random_states` stood.

    Args:
        states: may also come from Accelerate.
        device: of this process.
        noise: above 0 for a process that had no states of its own: python and numpy continue those of process 0,
            torch's noise becomes this one's own.
    """
    random.setstate(_tuples(states["random_state"]))
    if "numpy_random_seed" in states:
        import numpy

        name, keys, *rest = states["numpy_random_seed"]
        numpy.random.set_state((name, numpy.asarray(keys).astype("uint32"), *rest))
    torch.set_rng_state(states["torch_manual_seed"].cpu().clone())
    if noise:
        torch.manual_seed(int(torch.randint(2**62, ()).item()))
        part_noise(noise)
    elif _key(device) in states:
        of_devices = states[_key(device)]
        kind_of(device).set_random_state(of_devices[min(device.index or 0, len(of_devices) - 1)], device)


def _key(device: torch.device) -> str:
    return f"torch_{device.type}_manual_seed"


def _tuples(value: Any) -> Any:
    """Lists as tuples, all the way down: what python's generator asks for."""
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value
