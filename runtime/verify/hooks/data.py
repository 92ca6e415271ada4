"""What loaders hand out: the samples of every batch, and how many batches there are at most."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset
from torch.utils.data.dataloader import _InfiniteConstantSampler

from ..exact import pretended
from .recorder import Recorder
from .rows import leaves, row_hashes

_ROWS = "_rows_at_most"


@dataclass
class InHand:
    """The batch that the script works on."""

    number: int = 0
    """How many batches have been handed out so far, by all loaders."""
    rows: int = 0
    """Its rows on this process."""
    before: int = 0
    """Rows of the same batch on the processes before this one."""
    total: int = 0
    """Its rows on all processes."""
    by_hand: bool = False
    """No loader has handed it out: the script has made it, and the runtime has cut it."""
    cuts: int = 0
    """How many such batches there were so far."""

    def look(self) -> None:
        """Take notice of a batch that the runtime has cut since."""
        module = sys.modules.get("torchlift.runtime.data.hand_batches")
        if module is None or module.HandBatches.cuts == self.cuts:
            return
        rank, shares = module.HandBatches.latest
        self.cuts, self.by_hand = module.HandBatches.cuts, True
        self.rows, self.before, self.total = shares.rows[rank], sum(shares.valid[:rank]), sum(shares.valid)


class Loaders:
    """
    Watches all loaders of a process.

    Args:
        recorder: of the trace.
        double: hand out floating point numbers in float64.
        pretend: an accelerator is pretended, and a batch may be on it.
    """

    def __init__(self, recorder: Recorder, double: bool, pretend: bool = False) -> None:
        self.recorder = recorder
        self.double = double
        self.pretend = pretend
        self.hand = InHand()
        self._passes = 0
        self._depth = 0
        self.datasets: dict[int, tuple[int, Any]] = {}

    def install(self) -> None:
        """Watch and shorten loaders from now on."""
        _shorten_batches(self.recorder)
        _shorten_streams(self.recorder)
        self.watch_class(DataLoader)

    def watch_class(self, cls: Any) -> None:
        """Watch the iterators that a class of loaders makes; the outermost `__iter__` counts."""
        original = cls.__iter__

        def watched(loader: Any) -> Any:
            if not self.recorder.mine or self._depth:
                return original(loader)
            return Watched(self._opened(loader, original), self._next_pass(), self._number(loader), self)

        cls.__iter__ = watched

    def inner(self, batches: Iterator[Any]) -> Any:
        """The next batch; loaders that are opened meanwhile belong to the one that is asked."""
        self._depth += 1
        try:
            return next(batches)
        finally:
            self._depth -= 1

    def _opened(self, loader: Any, original: Any) -> Any:
        self._depth += 1
        try:
            return original(loader)
        finally:
            self._depth -= 1

    def _next_pass(self) -> int:
        self._passes += 1
        return self._passes

    def _number(self, loader: Any) -> int:
        """Loaders over one data set are one: a prepared one and the script's own."""
        dataset = getattr(loader, "dataset", loader)
        return self.datasets.setdefault(id(dataset), (len(self.datasets), dataset))[0]

    def handed_out(self, batch: Any, batches: Any, number: int, loader: int) -> None:
        """Record a batch."""
        rows = row_hashes(batch)
        valid, before, total = self._share(batches, len(rows))
        self.hand.look()
        self.hand.number, self.hand.by_hand = self.hand.number + 1, False
        self.hand.rows, self.hand.before, self.hand.total = len(rows), before, total
        self.recorder.current = number
        where = self.recorder.line()
        more = {"on": any(map(pretended.there, leaves(batch)))} if self.pretend else {}
        self.recorder.write("batch", p=number, l=loader, rows=rows, valid=valid, at=where, **more)

    def _share(self, batches: Any, rows: int) -> tuple[int, int, int]:
        """Rows that are no duplicates, rows on the processes before, and rows on all of them."""
        if "torchlift.runtime.data.loader" in sys.modules:
            from ...data.current_batch import shares_in_hand

            found = shares_in_hand(batches)
            if found is not None:
                rank, shares = found
                return shares.valid[rank], sum(shares.valid[:rank]), sum(shares.valid)
        size = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        return rows, rank * rows, size * rows


class Watched:
    """An iterator over the batches of one pass that tells what it hands out."""

    def __init__(self, batches: Any, number: int, loader: int, loaders: Loaders) -> None:
        self._batches = batches
        self._number = number
        self._loader = loader
        self._loaders = loaders

    def __iter__(self) -> Watched:
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name in ("_batches", "_number", "_loader", "_loaders"):
            raise AttributeError(name)
        return getattr(self._batches, name)

    def __next__(self) -> Any:
        try:
            batch = self._loaders.inner(self._batches)
        except StopIteration:
            self._left()
            raise
        if self._loaders.double:
            batch = as_double(batch)
        self._loaders.handed_out(batch, self._batches, self._number, self._loader)
        return batch

    def _left(self) -> None:
        if self._loaders.recorder.current == self._number:
            self._loaders.recorder.current = None

    def __del__(self) -> None:
        if "_loaders" in self.__dict__:  # a loop that was left early has let go of its iterator
            self._left()


def as_double(tree: Any) -> Any:
    """A batch with floating point numbers in float64."""
    if isinstance(tree, torch.Tensor):
        return tree.double() if tree.is_floating_point() else tree
    if isinstance(tree, dict):
        return type(tree)({key: as_double(value) for key, value in tree.items()})
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*map(as_double, tree))
    if type(tree) in (list, tuple):
        return type(tree)(map(as_double, tree))
    return tree


_MANY = 100_000
"""Nobody counts so many batches to come to the last one: samplers for a number of steps are asked for billions."""


def _shorten_batches(recorder: Recorder) -> None:
    """Passes have so many batches at most; the last one is the last one of the data, so that it is ragged as there."""
    every, length = BatchSampler.__iter__, BatchSampler.__len__

    def shortened(sampler: BatchSampler) -> Iterator[list[int]]:
        limit = recorder.limit()
        try:
            batches = length(sampler)
        except TypeError:  # an endless sampler; under a stream it only counts
            stream = isinstance(sampler.sampler, _InfiniteConstantSampler)
            return every(sampler) if stream else islice(every(sampler), limit)
        if batches > _MANY:  # as good as endless; the run ends after enough steps
            return every(sampler)
        if batches <= limit:
            return every(sampler)
        recorder.shortened = True
        return _first_and_last(every(sampler), limit)

    def counted(sampler: BatchSampler) -> int:
        if type(sampler).__iter__ is not shortened:
            return length(sampler)
        return min(length(sampler), recorder.limit())

    BatchSampler.__iter__ = shortened  # type: ignore[method-assign]
    BatchSampler.__len__ = counted  # type: ignore[method-assign]


def _first_and_last(batches: Iterator[list[int]], limit: int) -> Iterator[list[int]]:
    yield from islice(batches, limit - 1)
    last = None
    for last in batches:  # noqa: B007
        pass
    if last is not None:
        yield last


def _first(items: Iterator[Any], rows: int, recorder: Recorder) -> Iterator[Any]:
    yield from islice(items, rows)
    recorder.shortened = True


def _shorten_streams(recorder: Recorder) -> None:
    """Streams end after so many batches, counted where the script's data set yields them."""
    make = DataLoader.__init__

    def made(loader: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        make(loader, dataset, *args, **kwargs)
        if isinstance(dataset, IterableDataset) and type(dataset).__module__.partition(".")[0] != "torchlift":
            object.__setattr__(dataset, _ROWS, loader.batch_size or 1)

    def subclassed(cls: Any, **kwargs: Any) -> None:
        if "__iter__" in cls.__dict__ and not cls.__module__.startswith("torchlift."):
            cls.__iter__ = _short_stream(cls.__iter__, recorder)

    DataLoader.__init__ = made  # type: ignore[method-assign,assignment]
    IterableDataset.__init_subclass__ = classmethod(subclassed)  # type: ignore[assignment,method-assign,arg-type]


def _short_stream(every: Any, recorder: Recorder) -> Any:
    def shortened(dataset: Any) -> Iterator[Any]:
        rows = dataset.__dict__.get(_ROWS)
        items = every(dataset)
        return items if rows is None else _first(items, rows * recorder.limit(), recorder)

    return shortened
