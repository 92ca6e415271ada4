"""What each runtime can do that emitted code may call: one table, read wherever a spelling depends on the target."""

from __future__ import annotations

from typing import NamedTuple


class Abilities(NamedTuple):
    """The abilities of one target runtime."""

    module: str
    """Where ``Accelerator`` is imported from."""
    transparent_models: bool
    """``prepare`` returns the model itself: attributes, isinstance and whole-object saves need no unwrapping."""
    sums: bool
    """``backward`` takes ``reduction="sum"``."""
    split_batches: bool
    """The constructor honours ``split_batches``; otherwise it goes through a ``DataLoaderConfiguration``."""
    loads_to_device: bool
    """``torch.load`` accepts ``accelerator.device`` everywhere (Accelerate's may be ``cpu:0``, which it refuses)."""
    keeps_samplers: bool
    """A prepared loader keeps a DistributedSampler that it has; otherwise the rows would be sharded twice."""
    inert: bool
    """It has ``Inert``, which replaces a tracker or file on the processes that must not use it."""
    early_state: bool
    """It has ``EarlyState``, which knows the rank before anything is chosen or started."""
    reduces_anywhere: bool
    """``reduce`` takes tensors on any device, the CPU too."""
    adds_means: bool
    """``reduce`` takes ``reduction="sum_of_means"``."""
    shards_batches: bool
    """It has ``shard_batch``, which cuts a batch that the script makes without a loader."""
    fills_turns: bool
    """Where the batches do not come out even, the last turn is filled up, also for a loader with ``drop_last=True``;
    otherwise such a loader leaves it out."""


TORCHLIFT = Abilities(
    "torchlift.runtime",
    transparent_models=True,
    sums=True,
    split_batches=True,
    loads_to_device=True,
    keeps_samplers=True,
    inert=True,
    early_state=True,
    reduces_anywhere=True,
    adds_means=True,
    shards_batches=True,
    fills_turns=True,
)
ACCELERATE = Abilities(
    "accelerate",
    transparent_models=False,
    sums=False,
    split_batches=False,
    loads_to_device=False,
    keeps_samplers=False,
    inert=False,
    early_state=False,
    reduces_anywhere=False,
    adds_means=False,
    shards_batches=False,
    fills_turns=False,
)
