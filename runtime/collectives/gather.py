"""Gathering trees: one exchange of shapes, then one collective, however many tensors there are."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from ..errors import CollectiveError
from ..types import Tree
from .packing import Shape, bytes_of, fill, joined, pack, unpack
from .trees import rebuild, tensors_of
from .world import World


@dataclass(frozen=True)
class Gathered:
    """The pieces of all ranks: `pieces[i][r]` is tensor i of rank r."""

    pieces: list[list[torch.Tensor]]

    def rows(self, index: int) -> tuple[int, ...]:
        """How many rows each rank handed in for tensor `index`."""
        return tuple(len(piece) for piece in self.pieces[index])


def gather_pieces(world: World, tensors: list[torch.Tensor]) -> Gathered:
    """
    Exchange tensors. The ranks' tensors may differ in their first dimension; a scalar counts as one row.

    Raises:
        CollectiveError: other dimensions differ.
    """
    rows, all_shapes, dtypes = _exchange(world, tensors)
    per_rank = [unpack(row, shapes, dtypes) for row, shapes in zip(rows, all_shapes, strict=True)]
    return Gathered([[per_rank[rank][i].to(t.device) for rank in range(world.size)] for i, t in enumerate(tensors)])


def _exchange(world: World, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, list[list[Shape]], list[torch.dtype]]:
    """The packs of all ranks, one a row; what each of them holds; and the types, which are alike."""
    world.note("gather", tensors)
    own: list[Shape] = [tuple(tensor.shape) or (1,) for tensor in tensors]
    mine = [tensor if tensor.dim() else tensor.reshape(1) for tensor in tensors]
    dims = [len(shape) for shape in own]
    dtypes = [tensor.dtype for tensor in mine]
    told = [length for shape in own for length in shape]
    numbers, rows = world.gather_packs(
        told,
        lambda numbers: bytes_of(own if numbers is told else _split(numbers, dims), dtypes),
        lambda length: pack(mine, world.device, length, may_alias=True),
    )
    all_shapes = [own if row == told else _split(row, dims) for row in numbers]
    _same_inner(all_shapes)
    return rows, all_shapes, dtypes


def _split(numbers: list[int], dims: list[int]) -> list[Shape]:
    shapes, start = [], 0
    for count in dims:
        shapes.append(tuple(numbers[start : start + count]))
        start += count
    return shapes


def _same_inner(all_shapes: list[list[Shape]]) -> None:
    if all(shapes is all_shapes[0] for shapes in all_shapes):
        return
    for index, of_ranks in enumerate(zip(*all_shapes, strict=True)):
        if len({shape[1:] for shape in of_ranks}) > 1:
            listed = ", ".join(f"rank {rank}: {list(shape)}" for rank, shape in enumerate(of_ranks))
            raise CollectiveError(
                f"gather: tensor {index} has different inner dimensions on the ranks ({listed}). Only the first "
                "dimension may differ; make the others equal with accelerator.pad_across_processes(tensor, dim=...)."
            )


def gather(world: World, tree: Tree) -> Tree:
    """
    Join the tensors of all ranks along their first dimension, in rank order.

    A scalar becomes a vector with one value per rank. Alone, the tree itself is returned.
    """
    tensors = tensors_of(tree, "gather")
    if world.alone:
        return tree
    rows, all_shapes, dtypes = _exchange(world, tensors)
    if all(shapes == all_shapes[0] for shapes in all_shapes):
        whole = joined(rows, all_shapes[0], dtypes)
    else:
        per_rank = [unpack(row, shapes, dtypes) for row, shapes in zip(rows, all_shapes, strict=True)]
        whole = [torch.cat(pieces) for pieces in zip(*per_rank, strict=True)]
    pairs = zip(whole, tensors, strict=True)
    return rebuild(tree, [new if new.device == old.device else new.to(old.device) for new, old in pairs])


def pad_across_processes(world: World, tree: Tree, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Tree:
    """
    Fill the tensors of a tree up to the longest of all ranks in dimension `dim`.

    Args:
        world: the processes.
        tree: tensors; those without a dimension `dim` stay as they are.
        dim: the dimension to fill; may be negative.
        pad_index: the value to fill with.
        pad_first: fill before instead of after.
    """
    tensors = tensors_of(tree, "pad_across_processes")
    if world.alone:
        return tree
    world.note("pad_across_processes", tensors)
    lengths = [t.shape[dim] if -t.dim() <= dim < t.dim() else 0 for t in tensors]
    longest = [max(column) for column in zip(*world.gather_numbers(lengths), strict=True)]
    filled = [
        _fill(t, dim, size, pad_index, pad_first) if size > have else t
        for t, have, size in zip(tensors, lengths, longest, strict=True)
    ]
    return rebuild(tree, filled)


def _fill(tensor: torch.Tensor, dim: int, size: int, value: float, first: bool) -> torch.Tensor:
    shape = list(tensor.shape)
    have = shape[dim]
    shape[dim] = size
    filled = tensor.new_full(shape, value)
    filled.narrow(dim, size - have if first else 0, have).copy_(tensor)
    return filled


def broadcast(world: World, tree: Tree, source: int = 0) -> Tree:
    """
    The tree of rank `source`, on every rank. Shapes and types must be equal everywhere.

    Raises:
        CollectiveError: the sizes differ.
    """
    tensors = tensors_of(tree, "broadcast")
    if world.alone:
        return tree
    world.note("broadcast", tensors)
    sizes = world.gather_numbers([prod(t.shape) * t.dtype.itemsize for t in tensors])
    if any(row != sizes[0] for row in sizes):
        raise CollectiveError(f"broadcast: the tensors have different sizes on the ranks (bytes per rank: {sizes}).")
    return rebuild(tree, send_tensors(world, tensors, source))


def broadcast_tensors(world: World, tensors: list[torch.Tensor], source: int = 0) -> list[torch.Tensor]:
    """Like `broadcast`, for a list of tensors whose sizes are known to be equal; new tensors on their devices."""
    world.note(f"broadcast from {source}", tensors, equal=True)
    return send_tensors(world, tensors, source)


def overwrite_tensors(world: World, tensors: list[torch.Tensor], source: int = 0) -> None:
    """Copy the values of one rank into the tensors of the others, in place; sizes are known to be equal."""
    world.note(f"broadcast from {source}", tensors, equal=True)
    if world.rank == source:
        world.broadcast_bytes(pack(tensors, world.device, may_alias=True), source)
    else:
        fill(tensors, world.broadcast_bytes(None, source))


def follow(world: World, tensors: list[torch.Tensor], source: int = 0) -> None:
    """Like `overwrite_tensors`, right after an exchange that all ranks have taken part in."""
    world.note(f"broadcast from {source}", tensors, equal=True)
    if world.rank == source:
        world.broadcast_into(pack(tensors, world.device), source)
        return
    length = bytes_of([tuple(t.shape) for t in tensors], [t.dtype for t in tensors])
    packed = torch.empty(length, dtype=torch.uint8, device=world.device)
    world.broadcast_into(packed, source)
    fill(tensors, packed)


def send_tensors(world: World, tensors: list[torch.Tensor], source: int) -> list[torch.Tensor]:
    """The broadcast itself, of a collective that has been noted."""
    packed = world.broadcast_bytes(pack(tensors, world.device) if world.rank == source else None, source)
    new = unpack(packed, [tuple(t.shape) for t in tensors], [t.dtype for t in tensors])
    return [tensor.to(old.device) for tensor, old in zip(new, tensors, strict=True)]
