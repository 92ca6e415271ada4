"""
Many tensors as one run of bytes.

A tree of tensors of any types travels in one collective: those of one type are laid one after the other, and every type
begins on a boundary that it can be viewed from. So there is one copy for each type, not for each tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch

from ..torch_internals import as_one, copy_each, like

_ALIGNMENT = 16
_SMALL_BYTES = 1 << 16
"""Up to here one more copy costs less than a call for every tensor."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """Where the tensors of one type lie in a pack."""

    dtype: torch.dtype
    members: tuple[int, ...]
    """Which of the tensors."""
    lengths: tuple[int, ...]
    """Their numbers of elements."""
    start: int
    """The first byte."""
    end: int
    """The byte after the last one."""


def blocks_of(shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> tuple[list[Block], int]:
    """The blocks of such tensors, and how many bytes they take."""
    return _blocks(tuple(shapes), tuple(dtypes))


@lru_cache(maxsize=64)
def _blocks(shapes: tuple[Shape, ...], dtypes: tuple[torch.dtype, ...]) -> tuple[list[Block], int]:
    by_type: dict[torch.dtype, list[int]] = {}
    for index, dtype in enumerate(dtypes):
        by_type.setdefault(dtype, []).append(index)
    blocks, start = [], 0
    for dtype, members in by_type.items():
        lengths = tuple([prod(shapes[i]) for i in members])
        end = start + sum(lengths) * dtype.itemsize
        blocks.append(Block(dtype, tuple(members), lengths, start, end))
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
    return blocks, start


def bytes_of(shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> int:
    """How many bytes a pack of such tensors takes."""
    return blocks_of(shapes, dtypes)[1]


def pack(
    tensors: Sequence[torch.Tensor], device: torch.device, length: int | None = None, may_alias: bool = False
) -> torch.Tensor:
    """
    Lay tensors into one uint8 tensor on `device`.

    Args:
        tensors: of any shapes, types and devices; dense.
        length: bytes of the result, at least what the tensors take; that much when None.
        may_alias: the result is only read: it may be the memory of a tensor itself.
    """
    blocks, taken = blocks_of([tuple(t.shape) for t in tensors], [t.dtype for t in tensors])
    length = taken if length is None else length
    if may_alias and len(tensors) == 1 and blocks[0].end == length and not tensors[0].is_complex():
        alone = tensors[0].detach()
        if alone.device == device and alone.is_contiguous() and length:
            return alone.view(-1).view(torch.uint8)
    packed = torch.zeros(length, dtype=torch.uint8, device=device)
    with torch.no_grad():
        for block in blocks:
            if block.end > block.start:
                here = [one if one.device == device else one.to(device) for one in (tensors[i] for i in block.members)]
                flat = as_one(here) if len(here) > 1 else here[0].reshape(-1)
                packed[block.start : block.end].view(block.dtype).copy_(flat)
    return packed


def unpack(packed: torch.Tensor, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> list[torch.Tensor]:
    """The tensors of a pack, as views of it."""
    tensors: list[torch.Tensor] = [packed] * len(shapes)
    for block in blocks_of(shapes, dtypes)[0]:
        if block.end == block.start:
            for i in block.members:
                tensors[i] = packed.new_empty(shapes[i], dtype=block.dtype)
            continue
        pieces = packed[block.start : block.end].view(block.dtype).split(block.lengths)  # type: ignore[no-untyped-call]
        for i, piece in zip(block.members, pieces, strict=True):
            tensors[i] = piece.view(shapes[i])
    return tensors


def fill(tensors: Sequence[torch.Tensor], packed: torch.Tensor) -> None:
    """Copy a pack of such tensors into them: in a few calls for each type, not some for each tensor."""
    with torch.no_grad():
        for block in blocks_of([tuple(t.shape) for t in tensors], [t.dtype for t in tensors])[0]:
            if block.end > block.start:
                into = [tensors[i] for i in block.members]
                copy_each(into, like(packed[block.start : block.end].view(block.dtype), into))


def joined(rows: torch.Tensor, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> list[torch.Tensor]:
    """The tensors of packs that look alike, one pack a row, joined along their first dimension; contiguous."""
    tensors: list[torch.Tensor] = [rows] * len(shapes)
    size = len(rows)
    for block in blocks_of(shapes, dtypes)[0]:
        whole = [(size * shapes[i][0], *shapes[i][1:]) for i in block.members]
        if block.end == block.start:
            for i, shape in zip(block.members, whole, strict=True):
                tensors[i] = rows.new_empty(shape, dtype=block.dtype)
            continue
        pieces = rows[:, block.start : block.end].view(block.dtype).split(block.lengths, dim=1)  # type: ignore[no-untyped-call]
        if len(pieces) > 1 and size * (block.end - block.start) <= _SMALL_BYTES:
            together = as_one(list(pieces))
            pieces = together.split([size * length for length in block.lengths])  # type: ignore[no-untyped-call]
        for i, piece, shape in zip(block.members, pieces, whole, strict=True):
            tensors[i] = (piece if piece.shape == shape else piece.reshape(shape)).contiguous()
    return tensors
