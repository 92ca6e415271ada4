"""The rows of a batch, whatever its shape, as hashes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import torch

_MOST_COLUMNS = 3
"""So many dicts may be the parts of a batch; more are its samples."""
_IGNORED = -100
"""With this, losses of torch leave out what pads the labels."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def row_hashes(batch: Any) -> list[str]:
    """One hash for each row of a batch, of what it holds in that row."""
    found = [leaf for leaf in leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    listed = _listed(batch, found)
    if listed is not None:
        return [_hash(row) for row in listed]
    if not found:
        return [_hash(batch)]
    texts = _cut_apart(found)
    if texts is not None:
        return [_hash(row) for row in texts]
    rows = found[0].shape[0]
    hashes = [hashlib.blake2b(digest_size=8) for _ in range(rows)]
    whole = [leaf.detach().cpu() for leaf in found if leaf.shape[0] == rows and leaf.numel()]
    said = [leaf for leaf in whole if not _is_mask(leaf)]
    said = said if any(leaf.dim() > 1 for leaf in said) else whole
    for leaf in said:
        for row, one in enumerate(hashes):
            part = _unpadded(leaf[row])
            one.update(repr(tuple(part.shape)).encode())
            one.update(_bytes(part).data)
    return [one.hexdigest() for one in hashes]


def _is_mask(leaf: torch.Tensor) -> bool:
    """Whether a part of a batch may say where its rows are padded: with True or with False, as the script likes."""
    return leaf.dim() > 1 and leaf.dtype is torch.bool


def _unpadded(row: torch.Tensor) -> torch.Tensor:
    """
    A row without what a `collate_fn` fills it up with, to the longest of its batch: in another batch that is longer.

    Zeros and -100 at the end are taken for that, and so are ones and what is at the beginning of a text, a row of whole
    numbers above one: a tokenizer may pad with 1, and on the left. Other rows of one shape differ after it where they
    differed before.
    """
    if not row.dim() or row.is_sparse or row.is_complex() or row.is_quantized:
        return row
    kept = row.to(torch.float32) != 0 if row.dtype.itemsize == 1 and row.is_floating_point() else row != 0
    text = row.dim() == 1 and not row.is_floating_point() and row.dtype is not torch.bool and bool((row > 1).any())
    if not row.is_floating_point():
        kept &= (row != _IGNORED) & (row != 1) if text else row != _IGNORED
    for dim in range(row.dim()):
        others = [other for other in range(row.dim()) if other != dim]
        used = kept.any(dim=others) if others else kept
        places = used.nonzero()
        first = int(places[0]) if text else 0
        row = row.narrow(dim, first, int(places[-1]) + 1 - first if len(places) else 0)
    return row


def _cut_apart(tensors: list[torch.Tensor]) -> list[Any] | None:
    """
    The rows of a batch that joins the texts of its rows to one, with a tensor of where each begins.

    The beginnings are those of the batch: a shard of it has others for the same rows. Nothing without such a tensor.
    """
    for offsets in sorted(filter(_counts_up, tensors), key=lambda tensor: -int(tensor[-1])):
        rows, last = offsets.shape[0], int(offsets[-1])
        joined = [tensor for tensor in tensors if tensor.shape[0] != rows]
        if joined and all(tensor.dim() == 1 and tensor.shape[0] > last for tensor in joined):
            break
    else:
        return None
    beside = [tensor for tensor in tensors if tensor.shape[0] == rows and tensor is not offsets]
    ends = [*offsets.tolist()[1:], None]
    parts = (
        [[text[first:end] for text in joined], [tensor[row] for tensor in beside]]
        for row, (first, end) in enumerate(zip(offsets.tolist(), ends, strict=True))
    )
    return list(parts)


def _counts_up(tensor: torch.Tensor) -> bool:
    """Whether a tensor has whole numbers that begin with zero and never fall."""
    whole = tensor.dim() == 1 and not tensor.is_floating_point() and tensor.dtype is not torch.bool
    return whole and tensor.numel() > 0 and int(tensor[0]) == 0 and bool((tensor.diff() >= 0).all())


def leaves(tree: Any) -> Iterator[Any]:
    """The leaves of a batch: of dicts, lists, tuples, and of objects that hold tensors."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from leaves(value)
    elif hasattr(tree, "__dict__") and not isinstance(tree, torch.Tensor):
        for value in vars(tree).values():
            if isinstance(value, torch.Tensor):
                yield value
    else:
        yield tree


def _listed(batch: Any, tensors: list[torch.Tensor]) -> list[Any] | None:
    """
    The rows of a batch that is no stack of tensors: a list of samples, or lists of images and of targets.

    Nothing if a tensor holds all rows, or all tensors agree in how many there are.
    """
    if not isinstance(batch, (list, tuple)) or not batch or any(isinstance(one, torch.Tensor) for one in batch):
        return None
    if not all(isinstance(one, (list, tuple, dict)) for one in batch):
        return None
    sizes = {tensor.shape[0] for tensor in tensors}
    if all(isinstance(one, dict) for one in batch):
        alike = len(batch) > _MOST_COLUMNS and len({tuple(one) for one in batch}) == 1
        return list(batch) if alike or len(sizes) > 1 else None
    lists = [one for one in batch if isinstance(one, (list, tuple))]
    plain = [one for one in lists if not any(isinstance(item, torch.Tensor) for item in one)]
    if len(sizes) == 1 and (not plain or any(len(one) in sizes for one in plain)) and not _mixed(lists):
        return None
    lengths = {len(one) for one in lists}
    if len(lists) == len(batch) and len(lengths) == 1 and (len(batch) <= min(lengths) or lengths == {1}):
        return list(zip(*batch, strict=True))
    return list(batch)


def _mixed(lists: list[Any]) -> bool:
    """Whether tensors are beside other things in one list: it is a sample, no column."""
    return any(len({isinstance(item, torch.Tensor) for item in one}) > 1 for one in lists)


def _hash(value: Any) -> str:
    found = hashlib.blake2b(digest_size=8)
    for leaf in leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.update(_bytes(leaf).data)
        else:
            found.update(_ADDRESS.sub("", repr(leaf)).encode())
    return found.hexdigest()


def _bytes(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
