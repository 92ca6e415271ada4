"""Sharing things out among processes: each gets a run of its own, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import Dataset, Subset


def split(inputs: Any, rank: int, size: int, pad: bool = False, device: torch.device | None = None) -> Any:
    """
    The part of one process; `inputs` is not changed.

    Args:
        inputs: a list, a tuple, a tensor or an array (along its first dimension), a data set, or a dict of such, all
            of one length.
        rank: of the process.
        size: how many there are. The first `len(inputs) % size` of them get one more than the others.
        pad: repeat the last element, so that all get as many.
        device: where padded tensors go; None leaves them where they are.

    Raises:
        ValueError: the values of a dict have different lengths.
        TypeError: something that cannot be cut.
    """
    if isinstance(inputs, Mapping):
        lengths = {key: len(value) for key, value in inputs.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"All values in the dictionary must have the same length; they have {lengths}.")
        return {key: split(value, rank, size, pad, device) for key, value in inputs.items()}
    length = len(inputs)
    each, extra = divmod(length, size)
    start = rank * each + min(rank, extra)
    chosen = list(range(start, start + each + (rank < extra)))
    if pad and extra:
        chosen += [length - 1] * (each + 1 - len(chosen))
    return _take(inputs, chosen, start, device if pad else None)


def _take(inputs: Any, chosen: list[int], start: int, device: torch.device | None) -> Any:
    if isinstance(inputs, torch.Tensor):
        last = start + len(chosen)
        tensor = inputs[start:last] if chosen == list(range(start, last)) else inputs[chosen]
        return tensor if device is None else tensor.to(device)
    if isinstance(inputs, (list, tuple)):
        return type(inputs)([inputs[i] for i in chosen]) if not hasattr(inputs, "_fields") else _no(inputs)
    if hasattr(inputs, "select"):  # a data set of Hugging Face
        return inputs.select(chosen)
    if isinstance(inputs, Dataset):
        return Subset(inputs, chosen)
    if hasattr(inputs, "shape"):
        return inputs[chosen]
    return _no(inputs)


def _no(inputs: Any) -> Any:
    raise TypeError(f"a {type(inputs).__name__} cannot be split between processes. Convert it to a list.")
