"""
Sharding by hand, as Accelerate documents it: classes for scripts that build their loaders from them.

`Accelerator.prepare` does not use them: it keeps the script's own classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ..classes import Front, in_front
from ..collectives.world import Imagined, World
from ..data.batches import KEY
from ..data.epochs import Epochs, seed_of
from ..data.loader import LoaderOptions, is_prepared, prepare_loader, skip_first_batches, tell_epoch
from ..data.progress import Progress
from ..data.samplers import Skipping
from ..data.shares import RoundRules, count_rounds, rounds
from ..data.torchdata import stateful_class, with_state
from ..device.placement import send_to_device
from ..errors import MixedUseError, NotAvailableYet
from ..process.state import PartialState
from ..types import RNGType

_END = object()


class BatchSamplerShard(BatchSampler):
    """
    The batches of one process out of those of a batch sampler.

    Args:
        batch_sampler: of the whole job.
        num_processes: how many processes there are.
        process_index: this one.
        split_batches: every batch is cut in equal parts; else batches are handed out in turn.
        even_batches: what is missing at the end is taken from the start.

    Raises:
        MixedUseError: a batch cannot be cut in equal parts; a ValueError.
    """

    def __init__(
        self,
        batch_sampler: Any,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
    ) -> None:
        self.batch_sampler = batch_sampler
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.even_batches = even_batches
        self.batch_size = getattr(batch_sampler, "batch_size", None)  # type: ignore[assignment]
        self.drop_last = getattr(batch_sampler, "drop_last", False)
        if split_batches and self.batch_size is None:
            raise MixedUseError("split_batches=True needs batches of a fixed size: this sampler has no batch_size.")
        if split_batches and self.batch_size % num_processes:
            raise MixedUseError(
                f"split_batches=True: the batch size ({self.batch_size}) must be a round multiple of the number of "
                f"processes ({num_processes})."
            )

    @property
    def total_length(self) -> int:
        """Batches of the whole job."""
        return len(self.batch_sampler)

    @property
    def _rules(self) -> RoundRules:
        even = self.even_batches and self.batch_size is not None and not self.drop_last
        return RoundRules(size=self.num_processes, batch_size=self.batch_size, drop_last=self.drop_last, even=even)

    def __len__(self) -> int:
        if self.split_batches:
            return len(self.batch_sampler)
        even = (
            self.even_batches and not self.drop_last
        )  # as in Accelerate: what `drop_last` means for a prepared loader is more
        rules = RoundRules(size=self.num_processes, batch_size=None, drop_last=self.drop_last, even=even)
        return count_rounds(len(self.batch_sampler), rules, self.process_index)

    def __iter__(self) -> Iterator[list[int]]:
        if self.split_batches:
            return self._parts()
        if self.batch_size is None and self.even_batches and not self.drop_last:
            return self._in_turn()
        steps = (parts[self.process_index] for parts, _ in rounds(self.batch_sampler, self._rules))
        return (part for part in steps if part)

    def _in_turn(self) -> Iterator[list[int]]:
        """Batches of no fixed size; whole batches of the first round complete the last one."""
        first: list[list[int]] = []
        seen = 0
        for seen, batch in enumerate(self.batch_sampler, start=1):
            if len(first) < self.num_processes:
                first.append(batch)
            if (seen - 1) % self.num_processes == self.process_index:
                yield batch
        missing = -seen % self.num_processes
        number = self.process_index - (self.num_processes - missing)
        if missing and number >= 0:
            yield next(islice(cycle(first), number, None))

    def _parts(self) -> Iterator[list[int]]:
        length = self.batch_size // self.num_processes
        own = slice(length * self.process_index, length * (self.process_index + 1))
        first: list[int] = []
        for batch in self.batch_sampler:
            first = first or list(batch)
            if len(batch) == self.batch_size:
                yield list(batch[own])
            elif not self.drop_last:
                filled = list(islice(cycle(first), self.batch_size - len(batch))) if self.even_batches else []
                if part := [*batch, *filled][own]:
                    yield part


class IterableDatasetShard(IterableDataset[Any]):
    """
    The samples of one process out of a stream that every process reads.

    Args:
        dataset: the stream.
        batch_size: of a process; of the job with `split_batches`.
        drop_last: leave out what does not make a whole step.
        num_processes: how many processes there are.
        process_index: this one.
        split_batches: see `batch_size`.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
    ) -> None:
        if split_batches and batch_size > 1 and batch_size % num_processes:
            raise MixedUseError(
                f"split_batches=True: the batch size ({batch_size}) must be a round multiple of the number of "
                f"processes ({num_processes})."
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches

    def set_epoch(self, epoch: int) -> None:
        """Handed on to the stream."""
        self.epoch = epoch
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    @property
    def _lengths(self) -> tuple[int, int]:
        """Samples of a step: of the job, of a process."""
        if self.split_batches:
            return self.batch_size, self.batch_size // self.num_processes
        return self.batch_size * self.num_processes, self.batch_size

    def __len__(self) -> int:
        whole, own = self._lengths
        count = len(self.dataset)
        return (count // whole if self.drop_last else -(-count // whole)) * own

    def __iter__(self) -> Iterator[Any]:
        whole, own = self._lengths
        stream, first = iter(self.dataset), None
        while step := list(islice(stream, whole)):
            first = first or step
            if len(step) < whole:
                if self.drop_last:
                    return
                step += islice(cycle(first), whole - len(step))
            yield from step[own * self.process_index : own * (self.process_index + 1)]


class SkipBatchSampler(BatchSampler):
    """A batch sampler without its first batches."""

    def __init__(self, batch_sampler: Any, skip_batches: int = 0) -> None:
        self.batch_sampler = batch_sampler
        self.skip_batches = skip_batches
        self.batch_size = getattr(batch_sampler, "batch_size", None)  # type: ignore[assignment]
        self.drop_last = getattr(batch_sampler, "drop_last", False)

    @property
    def sampler(self) -> Any:  # type: ignore[override]
        """Of the batch sampler."""
        return getattr(self.batch_sampler, "sampler", None)

    @property
    def total_length(self) -> int:
        """Batches with those that are skipped."""
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        return iter(Skipping(self.batch_sampler, self.skip_batches))

    def __len__(self) -> int:
        return len(self.batch_sampler) - self.skip_batches


class DataLoaderStateMixin:
    """Marks the loaders of this module, for scripts that ask for it."""


class _Prepared(type):
    """Loaders that were prepared count as objects of these classes, whatever class the script has given them."""

    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        if cls not in (DataLoaderShard, DataLoaderDispatcher) or not is_prepared(instance):
            return False
        options = instance.__dict__[KEY].options
        return bool(options.dispatch) is (cls is DataLoaderDispatcher)


class DataLoaderShard(DataLoader[Any], DataLoaderStateMixin, metaclass=_Prepared):
    """
    A loader that moves its batches to a device and knows its last one.

    Args:
        dataset: as for torch's DataLoader.
        device: where batches go.
        skip_batches: how many are left out at the start of every pass.
        use_stateful_dataloader: the loader has `state_dict` and `load_state_dict`; with torchdata they are those of
            its StatefulDataLoader, and the state of one can be loaded by the other.
        more: for torch's DataLoader; what begins with an underscore, and generators to synchronise, is accepted.
    """

    def __new__(cls, *args: Any, use_stateful_dataloader: bool = False, **more: Any) -> DataLoaderShard:
        """Of a class that is known as torchdata's, too, where it has a state."""
        shown = use_stateful_dataloader and stateful_class() is not None
        return super().__new__(in_front(Front, cls, with_state()) if shown else cls)

    def __init__(
        self,
        dataset: Any,
        device: torch.device | None = None,
        rng_types: Any = None,
        synchronized_generator: Any = None,
        skip_batches: int = 0,
        use_stateful_dataloader: bool = False,
        **more: Any,
    ) -> None:
        given = {k: v for k, v in more.items() if not k.startswith("_") and k not in _ACCEPTED}
        super().__init__(dataset, **given)
        made_of = stateful_class() if use_stateful_dataloader else None
        self.base_dataloader: DataLoader[Any] = (made_of or DataLoader)(dataset, **given)
        self.device = device
        self.skip_batches = skip_batches
        self.end_of_dataloader = False
        self._split = bool(more.get("split_batches"))
        self._epochs = Epochs()
        self.use_stateful_dataloader = use_stateful_dataloader
        self._torchlift_reader: Any = None
        if use_stateful_dataloader:
            self._torchlift_reader = _stateful(self.base_dataloader, device, skip_batches)
            self._epochs = self._torchlift_reader.__dict__[KEY].epochs
            self.state_dict, self.load_state_dict = (
                self._torchlift_reader.state_dict,
                self._torchlift_reader.load_state_dict,
            )

    @property
    def iteration(self) -> int:
        """The number of the pass that runs, or of the next one."""
        return self._epochs.number

    @iteration.setter
    def iteration(self, number: int) -> None:
        self._epochs.set(number)

    @property
    def total_batch_size(self) -> int:
        """Rows of a step on all processes."""
        size = getattr(self.batch_sampler, "batch_size", None) or self.batch_size or 1
        return int(size) * (1 if self._split else PartialState().num_processes)

    @property
    def total_dataset_length(self) -> int:
        """Rows of the data set."""
        return len(self.dataset)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that of this epoch; samplers and data sets hear of it."""
        self.iteration = epoch
        tell_epoch(self, epoch)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.end_of_dataloader = False
        if self._torchlift_reader is not None:
            for batch in self._torchlift_reader:
                self.end_of_dataloader = self._torchlift_reader.end_of_dataloader
                yield batch
            return
        self._epochs.begin()
        batches = islice(super().__iter__(), self.skip_batches, None)
        batch = next(batches, _END)
        while batch is not _END:
            following = next(batches, _END)
            self.end_of_dataloader = following is _END
            yield batch if self.device is None else send_to_device(batch, self.device)
            batch = following
        self._epochs.end()


def _stateful(loader: DataLoader[Any], device: torch.device | None, skipped: int) -> Any:
    """What reads for a loader whose place can be saved: of this process alone."""
    alone = World(0, 1, torch.device("cpu"))
    options = LoaderOptions(
        world=alone, progress=Progress(), device=device, non_blocking=False, split=False, even=True, stateful=True
    )
    return skip_first_batches(prepare_loader(loader, options), skipped)


def get_sampler(dataloader: DataLoader[Any]) -> Any:
    """
    What a loader draws single indices from; None where it draws none, or whole batches by itself.

    It is the script's own, of a prepared loader too: `set_epoch` on it, or its generator, counts for the next pass.
    """
    batches = getattr(dataloader, "batch_sampler", None)
    return getattr(dataloader, "sampler", None) if batches is None else getattr(batches, "sampler", None)


_ACCEPTED = ("split_batches", "slice_fn", "torch_device_mesh")


class DataLoaderDispatcher(DataLoaderShard):
    """The same, under the name of the loaders that one process reads for all. Hand it to `prepare` to share it."""


class SkipDataLoader(DataLoaderShard):
    """The same, under the name of loaders that leave out batches."""

    def __len__(self) -> int:
        return super().__len__() - self.skip_batches


def prepare_data_loader(
    dataloader: DataLoader[Any],
    device: torch.device | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    split_batches: bool = False,
    put_on_device: bool = False,
    rng_types: list[str] | None = None,
    dispatch_batches: bool | None = None,
    even_batches: bool = True,
    slice_fn_for_dispatch: Any = None,
    use_seedable_sampler: bool = False,
    data_seed: int | None = None,
    non_blocking: bool = False,
    use_stateful_dataloader: bool = False,
    torch_device_mesh: Any = None,
) -> DataLoader[Any]:
    """
    Prepare a loader without an accelerator: a new one of its own class, for one process of a job.

    Args:
        dataloader: the script's.
        device: where batches go, with `put_on_device`.
        num_processes: how many processes there are; those of this job when None.
        process_index: this one.
        split_batches: every batch is shared.
        put_on_device: move batches.
        rng_types: random numbers that are made those of rank 0 at the start of every pass.
        dispatch_batches: rank 0 reads for all.
        even_batches: what is missing at the end is taken from the start.
        slice_fn_for_dispatch: accepted; rows are cut from tensors, and from lists with one entry a row.
        use_seedable_sampler: shuffle by a seed and the number of the epoch.
        data_seed: that seed.
        non_blocking: do not wait for copies to the device.
        use_stateful_dataloader: the loader has `state_dict` and `load_state_dict`.
        torch_device_mesh: None; meshes are not available yet.
    """
    if torch_device_mesh is not None:
        raise NotAvailableYet("a loader on a mesh", "Leave it out.")
    place = PartialState()
    size = place.num_processes if num_processes is None else num_processes
    rank = place.process_index if process_index is None else process_index
    world = World(rank, size, place.device)
    # for a place that is not that of this process (in a test) there is nobody to ask for a seed
    asked = world if size == place.num_processes else World(0, 1, place.device)
    options = LoaderOptions(
        world=world if asked is world else Imagined(rank, size, place.device),
        progress=Progress(),
        device=(device or place.device) if put_on_device else None,
        non_blocking=non_blocking,
        split=split_batches,
        even=even_batches,
        dispatch=bool(dispatch_batches),
        seed=seed_of(asked, data_seed) if use_seedable_sampler else None,
        rng_types=tuple(RNGType(word) for word in rng_types or ()),
        stateful=use_stateful_dataloader,
    )
    return prepare_loader(dataloader, options)
