"""Loaders of the script that were never prepared, as messages name them."""

from __future__ import annotations

from torch.utils.data import DataLoader, DistributedSampler

from ..data.loader import is_prepared
from ..monitoring import script


def unprepared_loader(sizes: tuple[int, ...]) -> str:
    """
    A sentence about a loader that rows may come from which fit no batch of a prepared one; nothing where there is none.

    Args:
        sizes: how many rows the processes have gathered.
    """

    def fits(value: object) -> bool:
        if not isinstance(value, DataLoader) or is_prepared(value) or isinstance(value.sampler, DistributedSampler):
            return False
        return value.batch_size == sizes[0]

    name, _ = script.variable_of(fits) if len(set(sizes)) == 1 else ("", None)
    if not name:
        return ""
    return (
        f"The loader `{name}` was never prepared: if the rows are of its batches, every process has all of them, and "
        f"each is counted {len(sizes)} times. Pass it to accelerator.prepare."
    )
