"""Which epoch a loader is in, and orders that follow from a seed and that number alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from ..collectives.world import World
from .progress import Pass
from .timing import Clock

_SEEDS = 2**62


class Epochs:
    """
    Counts the passes over a loader. Loaders that skip batches of it share its count.

    A pass that was left early counts when the next one begins, so that saving in the middle of one finds its number.
    """

    def __init__(self) -> None:
        self.number = 0
        """Of the pass that runs, or of the next one when none does."""
        self.current: Pass | None = None
        """The pass that was begun last."""
        self.beginning: Any = None
        """How it began, where loaders keep that."""
        self.go_on: Any = None
        """How the pass began that the next one continues."""
        self.workers = False
        """Workers that persist were there when the state was saved: the next pass draws no seed for new ones."""
        self.clock = Clock()
        self._running = False

    def __getstate__(self) -> dict[str, Any]:
        """A pass, and what it takes, stay in the process that runs it."""
        return {**vars(self), "current": None, "clock": Clock()}

    def begin(self) -> None:
        """A pass begins."""
        if self._running:
            self.number += 1
        self._running = True

    def end(self) -> None:
        """The pass that runs has come to its end."""
        if self._running:
            self._running = False
            self.number += 1

    def set(self, number: int) -> None:
        """The next pass is this one."""
        self.number = number
        self._running = False


class SeedableRandomSampler(RandomSampler):
    """
    Shuffles by a seed and the number of the epoch, so that the order of an epoch can be had again.

    Args:
        args: for torch's RandomSampler.
        data_seed: the seed; that of torch when None.
        kwargs: for torch's RandomSampler. Without a generator it makes one of its own.
    """

    def __init__(self, *args: Any, data_seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.epoch = 0
        self.initial_seed = (torch.initial_seed() if data_seed is None else data_seed) % _SEEDS

    def __iter__(self) -> Iterator[int]:
        if self.generator is None:
            self.generator = torch.Generator()
        self.generator.manual_seed(self.initial_seed + self.epoch)
        yield from super().__iter__()
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that of this epoch."""
        self.epoch = epoch


class EpochOrder(RandomSampler):
    """The same for a prepared loader, which counts its epochs itself."""

    def __init__(self, like: RandomSampler, seed: int, epochs: Epochs) -> None:
        super().__init__(like.data_source, like.replacement, like._num_samples, torch.Generator())
        self._seed = seed
        self._epochs = epochs

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed(self._seed + self._epochs.number)
        return super().__iter__()


def seed_of(world: World, data_seed: int | None) -> int:
    """The seed of all processes: the given one, or that of torch on rank 0."""
    if data_seed is not None:
        return data_seed % _SEEDS
    seed = torch.initial_seed() % _SEEDS
    if world.alone:
        return seed
    world.note("prepare a loader")
    return world.gather_numbers([seed])[0][0]


def in_order_of_epochs(loader: DataLoader[Any], seed: int, epochs: Epochs) -> Any:
    """What to draw indices from instead; None where the loader does not shuffle in the plain way."""
    sampler = loader.sampler
    if not isinstance(sampler, RandomSampler) or isinstance(sampler, SeedableRandomSampler):
        return None
    order = EpochOrder(sampler, seed, epochs)
    if loader.batch_sampler is None:
        return order
    if type(loader.batch_sampler) is not BatchSampler:
        return None
    return BatchSampler(order, loader.batch_sampler.batch_size, loader.batch_sampler.drop_last)
