"""Batches that a script makes without a loader: each process gets its rows of the batch of rank 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch

from ..collectives.world import World
from ..device.placement import is_container, map_tree, tensors_in
from ..errors import BatchShapeError
from .dispatch import Dispatched, cut
from .progress import Pass, Progress
from .shares import ShardPlan, Shares, split_rows


class HandBatches:
    """
    Cuts such batches, and tells the progress of an accelerator which rows are here.

    Args:
        world: the processes.
        progress: what `backward` asks for the weight of a loss.
    """

    cuts: ClassVar[int] = 0
    """How many batches this process was given its rows of: asked by ``--verify``."""
    latest: ClassVar[tuple[int, Shares] | None] = None
    """The rank, and the `Shares` of the latest of them."""

    def __init__(self, world: World, progress: Progress) -> None:
        self._world = world
        self._progress = progress
        self._pass: Pass | None = None

    def shard(self, batch: Any, dim: int) -> Any:
        """See `Accelerator.shard_batch`."""
        if self._world.alone:
            return batch
        steps = _steps(batch, dim, self._world.size) if self._world.rank == 0 else None
        tagged = next(Dispatched.of_parts(steps, self._world))
        (tree, kinds), shares = tagged.batch, tagged.shares
        # rank 0 keeps views of the script's batch: what is written into a shard must not reach the batch
        HandBatches.cuts, HandBatches.latest = HandBatches.cuts + 1, (self._world.rank, shares)
        mine = _restored(map_tree(_copied, tree) if self._world.rank == 0 else tree, kinds, dim)
        self._handed_out(mine, shares)
        return mine

    def _handed_out(self, batch: Any, shares: Shares) -> None:
        if self._pass is None:
            self._pass = Pass(None)
            self._pass.by_hand = True
            self._progress.began(self._pass)
        one = self._pass
        one.plan = ShardPlan(even=len(set(shares.valid)) == 1, full=all(shares.valid))
        one.advance(shares, last=False)
        self._progress.asks = True  # another loop may have other shards: each loss is asked which batch it is of
        self._progress.yielded(one)
        self._progress.handed_out(one, batch)


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _steps(batch: Any, dim: int, size: int) -> Iterator[tuple[list[Any], Shares]]:
    """The parts of a batch for all processes; errors are raised here, where the others hear of them."""
    kinds: list[str] = []
    tree = map_tree(lambda leaf: _as_tensor(leaf, dim, kinds), batch)
    rows = _rows(tree, dim)
    runs, shares = split_rows(rows, size)
    yield [(_cut(tree, start, end, rows), "".join(kinds)) for start, end in runs], shares


def _cut(tree: Any, start: int, end: int, rows: int) -> Any:
    plain = isinstance(tree, (list, tuple)) and not tensors_in(tree) and not any(map(is_container, tree))
    return tree[start:end] if plain else cut(tree, start, end, rows)


def _as_tensor(leaf: Any, dim: int, kinds: list[str]) -> Any:
    """A leaf with its rows in front; `kinds` takes a letter for what it was."""
    if isinstance(leaf, np.ndarray):
        if leaf.dtype == object:
            raise BatchShapeError("shard_batch: an array of Python objects cannot be cut. Give a list of them.")
        kinds.append("a")
        leaf = torch.from_numpy(np.ascontiguousarray(leaf))
    elif isinstance(leaf, torch.Tensor):
        if leaf.grad_fn is not None:
            raise BatchShapeError(
                "shard_batch: this tensor was computed from weights, and its gradient would be lost. Cut the batch "
                "before the forward pass."
            )
        kinds.append("g" if leaf.requires_grad else "c" if leaf.device.type == "cpu" else "d")
        leaf = leaf.detach()
    else:
        return leaf
    if not -leaf.dim() <= dim < leaf.dim():
        raise BatchShapeError(f"shard_batch(dim={dim}): a tensor of shape {tuple(leaf.shape)} has no such dimension.")
    return leaf.movedim(dim, 0) if dim else leaf


def _rows(tree: Any, dim: int) -> int:
    """How many rows a batch has."""
    if isinstance(tree, list) and any(map(is_container, tree)) and not tensors_in(tree):
        kind = type(next(filter(is_container, tree))).__name__
        raise BatchShapeError(
            f"shard_batch: this list holds {len(tree)} objects of type {kind}, which may be its rows or its columns. "
            "Give a tuple of columns, as in shard_batch(tuple(zip(*rows))), or one array of all rows."
        )
    lengths: dict[int, str] = {}
    _measure(tree, "", dim, lengths)
    if len(lengths) > 1:
        (one, first), (other, second) = list(lengths.items())[:2]
        raise BatchShapeError(
            f"shard_batch(dim={dim}): the parts of this batch have different numbers of rows: {first or 'it'} has "
            f"{one}, {second or 'it'} has {other}. Cut them with one call each, or before they get another shape."
        )
    if not lengths or not next(iter(lengths)):
        raise BatchShapeError("shard_batch: there are no rows in this batch. Give tensors, arrays, or a list of rows.")
    return next(iter(lengths))


def _measure(tree: Any, path: str, dim: int, lengths: dict[int, str]) -> None:
    if isinstance(tree, torch.Tensor):
        lengths.setdefault(len(tree), path)
    elif isinstance(tree, (list, tuple)) and not tensors_in(tree) and not any(map(is_container, tree)):
        if dim == 0:
            lengths.setdefault(len(tree), path)
    elif is_container(tree):
        for key, item in tree.items() if hasattr(tree, "items") else enumerate(tree):
            _measure(item, f"{path}[{key!r}]", dim, lengths)


def _restored(tree: Any, kinds: str, dim: int) -> Any:
    """The rows of this process as they were given: arrays as arrays, on the device on which they were."""
    letters = iter(kinds)

    def back(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        kind = next(letters)
        leaf = leaf.movedim(0, dim).contiguous() if dim else leaf
        if kind in "ac":
            leaf = leaf.cpu()
        return leaf.numpy() if kind == "a" else leaf.requires_grad_() if kind == "g" else leaf

    return map_tree(back, tree)
