"""Random numbers of a script that seeds nothing: made those of rank 0 once, when the job begins."""

from __future__ import annotations

import pickle
import random
import sys
import zlib
from typing import Any

import torch
import torch.distributed as dist

from .objects import broadcast_objects
from .world import World

_CHOSEN = 2**32
"""People choose smaller seeds; torch's own first one is larger, but for one start in two million."""


class _Begun:
    group: Any = None
    """The process group for which this was done."""


def share_unseeded(world: World) -> None:
    """
    Give every process the generators of rank 0, where the script has left them to chance.

    Splits, folds, shuffled lists and branches on a random number then are the same everywhere, as they are on one
    process. Generators that are equal already stay untouched; so do those that the script has seeded by rank.
    """
    if world.alone or _Begun.group is dist.group.WORLD:
        return
    _Begun.group = dist.group.WORLD
    hosts = _hosts()
    rows = world.gather_numbers([torch.initial_seed() % 2**63, zlib.crc32(pickle.dumps(hosts))])
    seeds = [seed for seed, _ in rows]
    apart = any(seed != seeds[0] for seed in seeds)
    if apart and all(seed < _CHOSEN for seed in seeds):
        return
    if not apart and len({mark for _, mark in rows}) == 1:
        return
    first: list[Any] = [hosts, torch.initial_seed(), torch.get_rng_state()]
    (python, numbers), seed, state = broadcast_objects(world, first)
    if world.rank:
        random.setstate(python)
        numpy = sys.modules.get("numpy")
        if numpy is not None and numbers is not None:
            numpy.random.set_state(numbers)
    if apart:  # on rank 0 too, for the generators of its GPU, which are not seeded by that of the CPU
        torch.manual_seed(seed)
        torch.set_rng_state(state)


def _hosts() -> tuple[Any, Any]:
    """The states of python's generator and, where it is loaded, of numpy's."""
    numpy = sys.modules.get("numpy")
    return random.getstate(), numpy.random.get_state() if numpy is not None else None
