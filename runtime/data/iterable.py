"""Iterable data sets: every process reads the stream and keeps its rows of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.data import IterableDataset

from ..device.placement import map_tree
from ..torch_internals import pinned
from .shares import RoundRules, Shares, rounds, split_one


@dataclass(slots=True)
class Tagged:
    """A batch, with the `Shares` of its step."""

    batch: Any
    shares: Shares

    def pin_memory(self) -> Tagged:
        """The batch in page-locked memory (the loader's thread asks for it)."""
        return Tagged(pinned(self.batch), self.shares)


class ShardedStream(IterableDataset[Tagged]):
    """
    A stream of (rows of this process, shares of the step). In a last step it may have no rows.

    Args:
        dataset: the script's data set.
        batch_size: rows of a script batch; None when the data set yields whole batches.
        drop_last: leave out a short last batch.
        rules: how rounds are made; None when every script batch is split.
        rank: this process.
        size: how many processes there are.
    """

    def __init__(
        self, dataset: Any, batch_size: int | None, drop_last: bool, rules: RoundRules | None, rank: int, size: int
    ) -> None:
        self.__dict__.update(
            _dataset=dataset,
            _batch_size=batch_size,
            _drop_last=drop_last,
            _rules=rules,
            _rank=rank,
            _size=size,
            _skip=0,
        )

    def leave_out(self, batches: int) -> None:
        """The first batches of the stream are read, and not handed out."""
        self.__dict__["_skip"] = batches

    def __getattr__(self, name: str) -> Any:
        """What the script's worker_init_fn asks of its data set."""
        if name in ("_dataset", "__setstate__"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """What the script's worker_init_fn sets on its data set (the part of a worker, for one)."""
        setattr(self._dataset, name, value)

    def __iter__(self) -> Iterator[Tagged]:
        lists = self._lists()
        if self._rules is None:
            steps: Iterator[tuple[list[list[Any]], Shares]] = (split_one(rows, self._size) for rows in lists)
        else:
            steps = rounds(lists, self._rules)
        for parts, shares in steps:
            yield Tagged(parts[self._rank], shares)

    def _lists(self) -> Iterator[list[Any]]:
        stream = iter(self._dataset)
        length = self._batch_size or 1
        for _ in islice(stream, length * self._skip):
            pass
        while rows := list(islice(stream, length)):
            if len(rows) < length and self._drop_last:
                return
            yield rows


@dataclass(frozen=True)
class TaggedCollate:
    """The script's collate function, applied to the rows inside a tag. A class, so that workers can unpickle it."""

    collate: Callable[[Any], Any]
    batched: bool

    def __call__(self, tagged: Tagged) -> Tagged:
        if not tagged.batch:
            return tagged
        return Tagged(self.collate(tagged.batch if self.batched else tagged.batch[0]), tagged.shares)


def cut_rows(batch: Any, start: int, end: int) -> Any:
    """Rows `start` to `end` of every tensor of a batch."""
    return map_tree(
        lambda leaf: leaf[start:end] if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf,
        batch,
    )


def rows_of(batch: Any) -> int | None:
    """Rows of the first tensor of a batch; None without one."""
    found: list[int] = []

    def look(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            found.append(leaf.shape[0])
        return leaf

    map_tree(look, batch)
    return found[0] if found else None
