"""
The order of samples is rank 0's, on every process.

torch's generators differ between the ranks (so that noise differs), but a shuffling sampler must draw the same
permutation everywhere. So at the start of a pass rank 0's generator state is lent to the others, for the sampler only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from ..collectives.gather import broadcast_tensors
from ..collectives.world import World
from ..device.kinds import kind_of
from ..types import RNGType

_NO_DRAWS = (SequentialSampler, DistributedSampler)
_DRAW_AT_START = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class LentState:
    """Rank 0's state of torch's generator, as a second stream beside this process's own."""

    def __init__(self, world: World, generators: list[torch.Generator]) -> None:
        self._world = world
        mine = [torch.get_rng_state(), *(generator.get_state() for generator in generators)]
        # clones, because torch 2.13 crashes on a state that is a view with an offset
        self._state, *states = [state.clone() for state in broadcast_tensors(world, mine)]
        if world.rank:
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Draws in the body come from the lent stream; this process's own stream stays where it was."""
        own = torch.get_rng_state()
        torch.set_rng_state(self._state)
        try:
            yield
        finally:
            self._state = torch.get_rng_state()
            torch.set_rng_state(own)

    @contextmanager
    def first(self) -> Iterator[None]:
        """Like `lent`, but rank 0 draws from its own stream, as plain torch would."""
        if self._world.rank:
            with self.lent():
                yield
        else:
            yield
            self._state = torch.get_rng_state()


def generators_of(*samplers: object) -> list[torch.Generator]:
    """The generators that the samplers were given, each once."""
    found = [getattr(sampler, "generator", None) for sampler in samplers]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def make_equal(world: World, types: Iterable[RNGType], generators: list[torch.Generator]) -> None:
    """Random numbers of these kinds go on from where those of rank 0 are."""
    if world.alone or not world.speaks:
        return
    wanted = list(types)
    chosen = list(generators) if RNGType.GENERATOR in wanted else []
    mine = [one.get_state() for one in chosen]
    if RNGType.TORCH in wanted:
        mine.append(torch.get_rng_state())
    device = world.device
    of_device = kind_of(device).random_state(device) if device.type in wanted else None
    if of_device is not None:
        mine.append(of_device)
    if not mine:
        return
    states = iter([state.clone() for state in broadcast_tensors(world, mine)])
    for one in chosen:
        one.set_state(next(states))
    if RNGType.TORCH in wanted:
        torch.set_rng_state(next(states))
    if of_device is not None:
        kind_of(device).set_random_state(next(states), device)


def draws(sampler: object) -> tuple[bool, bool]:
    """Whether a sampler may draw random numbers at all, and whether it may do so after its first index."""
    inner = getattr(sampler, "sampler", sampler) if type(sampler) is BatchSampler else sampler
    if type(inner) in _NO_DRAWS:
        return False, False
    return True, type(inner) not in _DRAW_AT_START


def in_order_of_rank_0(world: World, source: Iterable[Any], sampler: object, generators: list[torch.Generator]) -> Any:
    """
    Iterate `source` with the draws that rank 0 makes.

    Args:
        world: the processes.
        source: what to iterate.
        sampler: what decides whether draws happen, and when.
        generators: explicit generators that the sampler uses; they are set to rank 0's state.
    """
    any_draws, later_draws = draws(sampler)
    if world.alone or not world.speaks or not any_draws:
        yield from source
        return
    state = LentState(world, generators)
    with state.first():
        iterator = iter(source)
        item = next(iterator, _END)
    while item is not _END:
        yield item
        if later_draws:
            with state.lent():
                item = next(iterator, _END)
        else:
            item = next(iterator, _END)


_END = object()
