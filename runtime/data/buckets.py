"""Batches of few shapes: padded up to the next of some lengths, because torch_xla compiles each shape anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.functional import pad

from ..config.handlers import ShapeBuckets
from ..device.placement import is_container, map_items


def padded(batch: Any, buckets: ShapeBuckets) -> Any:
    """A batch whose tensors have one of these lengths; what is longer than all of them stays as it is."""
    if isinstance(batch, Mapping):
        return type(batch)({key: _filled(value, buckets, key) for key, value in batch.items()})  # type: ignore[call-arg]
    if isinstance(batch, (list, tuple)):
        positions = iter(range(len(batch)))
        return map_items(lambda value: _filled(value, buckets, next(positions)), batch)
    return _filled(batch, buckets, None)


def _filled(value: Any, buckets: ShapeBuckets, key: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return padded(value, buckets) if is_container(value) else value
    fill = buckets.fill.get(key) if isinstance(buckets.fill, Mapping) else buckets.fill
    if fill is None or value.dim() <= buckets.dim:
        return value
    length = value.shape[buckets.dim]
    wanted = next((one for one in sorted(buckets.lengths) if one >= length), length)
    after = [0, 0] * (value.dim() - buckets.dim - 1)  # torch counts from the last dimension
    return value if wanted == length else pad(value, [*after, 0, wanted - length], value=fill)
