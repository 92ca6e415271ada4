"""Random numbers: equal where control flow depends on them, different where they are noise."""

from __future__ import annotations

import random
import sys

import torch

from .. import torch_spmd
from ..config.environment import read_environment
from .topology import topology

alike = False
"""All processes draw what one would: ``--verify`` compares them with the original, and gives each its rows of it."""
_STRIDE = 0x9E3779B97F4A7C15  # the golden ratio in 64 bits: neighbouring ranks get unrelated seeds


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """
    Seed python, numpy (when it is loaded) and torch on all devices.

    Args:
        seed: the same on every process.
        device_specific: add the rank, so that every process draws other numbers. Weights are still made equal
            by `Accelerator.prepare`, but code that branches on random numbers then branches differently.
        deterministic: also ask torch for deterministic algorithms.
    """
    if device_specific:
        seed += topology(read_environment()).rank
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    if torch_spmd.begun():
        torch_spmd.seed(seed)
    if deterministic:
        torch.use_deterministic_algorithms(True)


def part_noise(rank: int) -> None:
    """Re-seed torch on ranks above 0, so that dropout and augmentation differ. python's and numpy's stay equal."""
    if rank and not alike:
        torch.manual_seed((torch.initial_seed() + rank * _STRIDE) % 2**63)
