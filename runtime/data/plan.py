"""What is certain about the shards of a pass before it begins."""

from __future__ import annotations

from typing import Any

from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from .epochs import EpochOrder, SeedableRandomSampler
from .samplers import KeptDistributedSampler
from .shares import EVEN, ShardPlan

_EXACT = (
    *(SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler),
    *(SeedableRandomSampler, EpochOrder),
)
"""Samplers that draw as many rows as they say. Those of a script may not."""


def plan_of(loader: Any, share: Any) -> ShardPlan:
    """
    What is certain about the batches of the next pass over a prepared loader.

    Args:
        loader: the loader.
        share: what it knows beside the attributes of the script's loader.
    """
    options = share.options
    if options.world.alone or not options.split or isinstance(share.indices, KeptDistributedSampler):
        return EVEN
    stream = isinstance(loader.dataset, IterableDataset)
    batches = loader.batch_sampler
    if loader.batch_size is None or not (stream or type(batches) is BatchSampler):
        return ShardPlan(even=False, full=False)
    size, rows, count = int(loader.batch_size), None if stream else _rows(batches.sampler), options.world.size
    last = 0 if loader.drop_last else None if rows is None else rows % size
    return ShardPlan(
        even=size % count == 0 and last is not None and last % count == 0,
        full=size >= count and last is not None and (not last or last >= count),
        key=None if rows is None else (size, rows, int(loader.drop_last), share.skip + share.left_out),
    )


def certain_length(loader: Any, share: Any) -> int | None:
    """
    How many batches this process gets in the next pass, where all that counts them is torch's own; else None.

    What a script has written may say one number and yield another one. Nothing is built upon that.
    """
    options = share.options
    dispatched = options.dispatch and not options.world.alone
    if isinstance(loader.dataset, IterableDataset) or dispatched or isinstance(share.indices, KeptDistributedSampler):
        return None
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return None
    sampler = loader.sampler if batches is None else batches.sampler
    return None if _rows(sampler) is None else len(loader._index_sampler)


def _rows(sampler: Any) -> int | None:
    try:
        return len(sampler) if type(sampler) in _EXACT else None
    except TypeError:  # a data set without a length
        return None
