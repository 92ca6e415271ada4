"""Data in the order of their indices, and samples whose own randomness is a function of their index."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DistributedSampler, RandomSampler, Subset, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data._utils.fetch import _MapDatasetFetcher

_STRIDE = 0x9E3779B97F4A7C15


class Fetching:
    """Whether a sample is being read: its randomness is seeded already. Then a batch is made of the samples."""

    now = False
    collating = False


def install() -> None:
    """Put every sampler of torch in order, and seed every sample, from now on."""
    RandomSampler.__iter__ = _in_order  # type: ignore[method-assign]
    SubsetRandomSampler.__iter__ = lambda self: iter(list(self.indices))  # type: ignore[method-assign]
    drawn = torch.multinomial

    def weighted(self: Any) -> Iterator[int]:
        generator = torch.Generator().manual_seed(0)
        yield from drawn(self.weights, self.num_samples, self.replacement, generator=generator).tolist()

    WeightedRandomSampler.__iter__ = weighted  # type: ignore[method-assign]
    distributed = DistributedSampler.__iter__

    def unshuffled(self: Any) -> Any:
        self.shuffle = False
        return distributed(self)

    DistributedSampler.__iter__ = unshuffled  # type: ignore[method-assign]
    _MapDatasetFetcher.fetch = _fetch  # type: ignore[method-assign]


def _in_order(self: Any) -> Iterator[int]:
    count = len(self.data_source)
    yield from (index % count for index in range(self.num_samples))


def _fetch(self: Any, wanted: Any) -> Any:
    """What the fetcher of torch does, one sample after the other, each with random numbers of its own."""
    states = random.getstate(), torch.get_rng_state(), _numpy_state()
    before, Fetching.now = Fetching.now, True
    try:
        if not self.auto_collation:
            _seed(wanted if isinstance(wanted, int) else 0)
            data = self.dataset[wanted]
        elif hasattr(self.dataset, "__getitems__") and not isinstance(self.dataset, Subset):
            _seed(wanted[0] if isinstance(wanted[0], int) else 0)
            data = self.dataset.__getitems__(wanted)
        else:
            data = [self.dataset[index] for index in wanted if _seed(index)]
    finally:
        Fetching.now = before
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        if states[2] is not None:
            sys.modules["numpy"].random.set_state(states[2])
    Fetching.collating = True
    try:
        return self.collate_fn(data)
    finally:
        Fetching.collating = False


def _numpy_state() -> Any:
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random.get_state()


def _seed(index: Any) -> bool:
    number = (hash(index) * _STRIDE + 1) % 2**63
    random.seed(number)
    torch.default_generator.manual_seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number % 2**32)
    return True
