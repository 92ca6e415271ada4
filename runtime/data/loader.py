"""
Prepared loaders.

A prepared loader is a new object of the script's own class: its attributes are those of the script's loader, and its
own `__iter__` still runs. Only what lies underneath is changed: which indices are drawn, which rows of a stream kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from .. import torch_spmd
from ..classes import Front, in_front
from ..collectives.world import World
from ..config.handlers import ShapeBuckets
from ..device.kinds import kind_of
from ..errors import MixedUseError, expect
from ..types import RNGType
from .batches import KEY, Batches
from .buckets import padded
from .dispatch import Dispatched
from .epochs import Epochs, in_order_of_epochs
from .iterable import ShardedStream, TaggedCollate
from .order import LentState, generators_of, make_equal
from .progress import Progress
from .samplers import KeptDistributedSampler, PeekableSampler, Sharded, Skipping, WholeItems
from .shares import RoundRules, count_rounds
from .stateful import Stateful, go_on, note_beginning
from .timing import Pace
from .torchdata import is_of_torchdata, with_state
from .transfer import sent


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    """How the loaders of an accelerator are prepared."""

    world: World
    progress: Progress
    device: torch.device | None
    """Where batches go; None leaves them where they are."""
    non_blocking: bool
    split: bool
    even: bool
    dispatch: bool = False
    """Rank 0 reads for all."""
    seed: int | None = None
    """Shuffle by this seed and the number of the epoch."""
    rng_types: tuple[RNGType, ...] = ()
    """Made those of rank 0 at the start of a pass."""
    stateful: bool = False
    """The place in the middle of a pass can be saved."""
    buckets: ShapeBuckets | None = None
    """Lengths to which batches are padded where each shape is compiled."""


@dataclass(frozen=True)
class Share:
    """What a prepared loader knows beside the attributes of the script's loader."""

    options: LoaderOptions
    indices: Sharded | KeptDistributedSampler | WholeItems | None = None
    """Draws the indices of this process; None for streams, and on one process."""
    stream: ShardedStream | None = None
    cuts: bool = False
    """Every process reads whole batches and keeps its rows."""
    order: Any = None
    """What rank 0 draws from instead of the script's sampler, when it reads for all."""
    epochs: Epochs = field(default_factory=Epochs)
    skip: int = 0
    """How many batches every pass leaves out at its start."""
    left_out: int = 0
    """How many batches of the script are left out before they are shared."""
    by_hand: bool = False
    """Made to skip batches of a loader that no accelerator has prepared: it may still be."""


def prepare_loader(loader: DataLoader[Any], options: LoaderOptions) -> DataLoader[Any]:
    """A loader that hands this process its shard, on its device. The script's loader stays usable beside it."""
    skipped = 0
    reader = vars(loader).get("_torchlift_reader")
    if reader is not None:  # made by hand, with a state: what reads for it reads the shard of this process from now on
        loader, options = reader, replace(options, stateful=True)
    if is_prepared(loader):  # by hand
        skipped = loader.__dict__[KEY].skip
        raw: DataLoader[Any] = object.__new__(type(loader)._torchlift_class)  # type: ignore[attr-defined]
        raw.__dict__.update({name: value for name, value in loader.__dict__.items() if name != KEY})
        loader = raw
    prepared: DataLoader[Any] = object.__new__(_extended(loader, options))
    prepared.__dict__.update(loader.__dict__)
    prepared.__dict__["_iterator"] = None  # workers that persist belong to the loader that started them
    prepared.__dict__[KEY] = _share(loader, options, skipped)
    if not options.world.alone:
        prepared.__dict__["in_order"] = True  # shares are told from the order of batches
    return prepared


def is_prepared(loader: object) -> bool:
    """Made by `prepare_loader`."""
    return isinstance(loader, PreparedLoader)


def pace_of(loader: object) -> Pace:
    """What the clock of a prepared loader shows. It begins anew."""
    expect("pace", loader, PreparedLoader, "a loader returned by prepare")
    pace: Pace = loader.__dict__[KEY].epochs.clock.read()
    return pace


def made_by_hand(loader: object) -> bool:
    """Made by `skip_first_batches` from a loader of the script: it can be prepared like that one."""
    return is_prepared(loader) and bool(loader.__dict__[KEY].by_hand)


def _share(loader: DataLoader[Any], options: LoaderOptions, skipped: int) -> Share:
    """What is under a loader. `skipped` batches of the script are left out before they are shared."""
    world, epochs = options.world, Epochs()
    stream = isinstance(loader.dataset, IterableDataset)
    batched = loader.batch_sampler is not None
    order = None if options.seed is None or stream else in_order_of_epochs(loader, options.seed, epochs)
    if options.dispatch and not world.alone:
        return Share(options, order=order, epochs=epochs, skip=skipped)
    if world.alone and order is None:
        return Share(options, epochs=epochs, skip=skipped)
    if options.split and not batched:
        indices = None if stream else WholeItems(order or loader.sampler, world, generators_of(order or loader.sampler))
        return Share(options, indices, cuts=True, epochs=epochs, skip=skipped)
    if stream:
        rules = _rules(options, loader.batch_size, loader.drop_last)
        sharded = ShardedStream(loader.dataset, loader.batch_size, loader.drop_last, rules, world.rank, world.size)
        sharded.leave_out(skipped)
        return Share(options, stream=sharded, epochs=epochs)
    source: Any = order or (loader.batch_sampler if batched else loader.sampler)
    kept = _distributed_sampler(loader, source)
    if kept is not None and not world.alone:
        size = getattr(source, "batch_size", None) if batched else None
        return Share(options, KeptDistributedSampler(source, kept, world, size), epochs=epochs)
    size = getattr(source, "batch_size", None)
    rules = (
        None if world.alone else _rules(options, size if batched else None, bool(getattr(source, "drop_last", False)))
    )
    # an order of epochs needs no agreement: every process has the same seed
    generators = [] if order is not None else generators_of(loader.sampler, source, getattr(source, "sampler", None))
    source = Skipping(source, skipped) if skipped else source
    sharded_indices = Sharded(source, world, rules, generators, batched, order is not None)
    return Share(options, sharded_indices, epochs=epochs, left_out=skipped)


def _rules(options: LoaderOptions, batch_size: int | None, drop_last: bool) -> RoundRules | None:
    if options.split:
        return None
    return RoundRules(size=options.world.size, batch_size=batch_size, drop_last=drop_last, even=options.even)


def _distributed_sampler(loader: DataLoader[Any], source: Any) -> DistributedSampler[Any] | None:
    for sampler in (loader.sampler, source, getattr(source, "sampler", None)):
        if isinstance(sampler, DistributedSampler) and sampler.num_replicas > 1:
            return sampler
    return None


_CLASSES: dict[tuple[type, bool, bool], type] = {}


def _extended(loader: DataLoader[Any], options: LoaderOptions) -> type:
    """The script's loader class with `PreparedLoader` in front, and further names where it has none of its own."""
    wanted = options.stateful and _has_none_of(loader, Stateful)
    if is_of_torchdata(loader):  # on several processes it does not know what it draws from, nor what was read for all
        wanted = not options.world.alone
    return _extension(type(loader), _has_none_of(loader, _Named), wanted)


def _has_none_of(loader: DataLoader[Any], names: type) -> bool:
    return not any(hasattr(loader, name) for name in vars(names) if name[0] != "_")


def _extension(cls: type, named: bool, stateful: bool) -> type:
    key = cls, named, stateful
    if key not in _CLASSES:
        added = {name: value for name, value in vars(_Named).items() if named and not name.startswith("_")}
        added |= {"_torchlift_named": named, "_torchlift_stateful": stateful}
        _CLASSES[key] = in_front(PreparedLoader, cls, *([with_state()] if stateful else []), **added)
    return _CLASSES[key]


def _empty(cls: type, named: bool, stateful: bool) -> Any:
    return object.__new__(_extension(cls, named, stateful))


class PreparedLoader(Front):
    """What a prepared loader does differently. Comes before the script's class in the order of lookup."""

    _is_accelerate_prepared = True
    _torchlift_named: bool
    _torchlift_stateful: bool

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles are prepared loaders, too: they share and skip as this one does."""
        kind = self._torchlift_class, self._torchlift_named, self._torchlift_stateful
        return _empty, kind, {**vars(self), "_iterator": None}

    def __iter__(self) -> Iterator[Any]:
        share: Share = self.__dict__[KEY]
        share.epochs.begin()
        if share.options.rng_types:
            make_equal(share.options.world, share.options.rng_types, generators_of(self, self.__dict__.get("sampler")))
        if self._torchlift_stateful:
            note_beginning(self, share)
        batches: Iterator[Any] = super().__iter__()  # type: ignore[misc]
        if share.options.device is None or share.options.device.type == "cpu":
            return batches
        if isinstance(batches, Batches) and batches.sends:
            return batches
        return _on_device(batches, share.options)

    def __len__(self) -> int:
        share: Share = self.__dict__[KEY]
        share.options.progress.length_asked = True
        length = self._torchlift_length()
        reads = isinstance(self.dataset, IterableDataset)  # type: ignore[attr-defined]
        dispatches = share.options.dispatch and not share.options.world.alone
        return max(length - share.skip, 0) if reads or dispatches else length  # else no index is drawn for them

    def _torchlift_length(self) -> int:
        share: Share = self.__dict__[KEY]
        options = share.options
        if options.dispatch and not options.world.alone:
            count = int(super().__len__())  # type: ignore[misc]
            return count if options.split else ceil(count / options.world.size)
        if share.stream is None:
            return int(super().__len__())  # type: ignore[misc]
        rows, size = len(self.dataset), self.batch_size or 1  # type: ignore[attr-defined]
        count = rows // size if self.drop_last else ceil(rows / size)  # type: ignore[attr-defined]
        rules = share.stream._rules
        return count if rules is None else count_rounds(count, rules, options.world.rank)

    @property
    def _auto_collation(self) -> bool:
        if self.__dict__[KEY].stream is not None:
            return False
        return bool(super()._auto_collation)  # type: ignore[misc]

    @property
    def _index_sampler(self) -> Any:
        share: Share = self.__dict__[KEY]
        source: Any = share.indices
        if source is None:
            source = share.order if share.order is not None else super()._index_sampler  # type: ignore[misc]
        streams = isinstance(self.dataset, IterableDataset)  # type: ignore[attr-defined]
        if streams or (share.options.dispatch and not share.options.world.alone):
            return source
        source = Skipping(source, share.skip) if share.skip else source
        return source if is_of_torchdata(self) and not self._torchlift_stateful else PeekableSampler(source)

    def _get_iterator(self) -> Any:
        share: Share = self.__dict__[KEY]
        if share.epochs.go_on is not None:
            return go_on(self, share, self._torchlift_iterator)
        if share.skip:
            # a pass that goes on has had its iterator before: what torch draws for another one is not drawn twice
            with torch.random.fork_rng(devices=[]):
                return self._torchlift_iterator(share, False)
        quiet, share.epochs.workers = share.epochs.workers, False
        return self._torchlift_iterator(share, quiet)

    def _torchlift_iterator(self, share: Share, quiet: bool) -> Any:
        world = share.options.world
        if share.options.dispatch and not world.alone:
            with _underneath(self, share, quiet):
                read = super()._get_iterator() if world.rank == 0 else None  # type: ignore[misc]
            return Batches(self._torchlift_dispatched(read), self, share, None)
        streams = isinstance(self.dataset, IterableDataset) and not world.alone  # type: ignore[attr-defined]
        lent = LentState(world, generators_of(self)) if streams else None
        with _underneath(self, share, quiet), lent.first() if lent else nullcontext():
            batches = super()._get_iterator()  # type: ignore[misc]
        return Batches(batches, self, share, lent if self.num_workers == 0 else None)  # type: ignore[attr-defined]

    def _torchlift_dispatched(self, read: Any) -> Dispatched:
        """What rank 0 reads (None elsewhere), sent to all."""
        options: LoaderOptions = self.__dict__[KEY].options
        threaded = self.num_workers > 0  # type: ignore[attr-defined]
        return Dispatched(read, options.world, options.split, threaded)

    def _torchlift_reset(self, batches: Any, first_iter: bool) -> Any:
        """Workers that persist begin another pass. Returns what to read it from."""
        read = batches.read if isinstance(batches, Dispatched) else batches
        if read is not None:
            read._index_sampler = self._index_sampler
            with _underneath(self, self.__dict__[KEY]):
                read._reset(self, first_iter)
        return self._torchlift_dispatched(read) if isinstance(batches, Dispatched) else batches


def tell_epoch(loader: Any, epoch: int) -> None:
    """Samplers and data sets of the script hear which epoch the next pass is of."""
    batches = loader.batch_sampler
    holders = (loader.sampler, batches, getattr(batches, "sampler", None), loader.dataset)
    for holder in {id(one): one for one in holders if hasattr(one, "set_epoch")}.values():
        holder.set_epoch(epoch)  # type: ignore[union-attr]


class _Named:
    """Names that Accelerate gives its loaders."""

    @property
    def iteration(self) -> int:
        """The number of the pass that runs, or of the next one."""
        number: int = self.__dict__[KEY].epochs.number
        return number

    @iteration.setter
    def iteration(self, number: int) -> None:
        self.__dict__[KEY].epochs.set(number)

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that of this epoch; samplers and data sets of the script hear of it."""
        self.__dict__[KEY].epochs.set(epoch)
        tell_epoch(self, epoch)

    @property
    def gradient_state(self) -> Any:
        """What Accelerate calls the state of a loop; that of the accelerator."""
        return self.__dict__[KEY].options.progress.gradient_state

    @property
    def even_batches(self) -> bool:
        """The last round is completed, so that all processes have equally many batches of equal size."""
        share: Share = self.__dict__[KEY]
        rules = getattr(share.indices, "rules", None)
        return share.options.even if rules is None else bool(rules.even)

    @property
    def end_of_dataloader(self) -> bool:
        """The batch in hand is the last one."""
        one = self.__dict__[KEY].epochs.current
        return one is not None and one.ended

    @property
    def remainder(self) -> int:
        """Rows of the data set in the last step, when it has duplicates; else -1."""
        one = self.__dict__[KEY].epochs.current
        return -1 if one is None or one.shares is None or one.shares.exact else sum(one.shares.valid)

    @property
    def total_batch_size(self) -> int:
        """Rows of a step on all processes."""
        share: Share = self.__dict__[KEY]
        size = getattr(self.batch_sampler, "batch_size", None) or self.batch_size or 1  # type: ignore[attr-defined]
        return int(size) if share.options.split else int(size) * share.options.world.size

    @property
    def total_dataset_length(self) -> int:
        """Rows of the data set."""
        return len(self.dataset)  # type: ignore[attr-defined]


def skip_first_batches(dataloader: Any, num_batches: int = 0) -> Any:
    """
    A loader that leaves out the first batches of every pass, for the pass that continues an interrupted one.

    Go back to the given loader afterwards. Both count the same epochs. Batches that are skipped are not read, except in
    streams, which cannot be entered in the middle.

    Args:
        dataloader: prepared or not.
        num_batches: batches of this process.
    """
    expect("skip_first_batches", dataloader, DataLoader, "a loader and the number of batches to skip")
    if num_batches < 0:
        raise MixedUseError(f"skip_first_batches(num_batches={num_batches}): it must be 0 or more.")
    loader = dataloader
    if not is_prepared(loader):
        world = World(0, 1, torch.device("cpu"))
        alone = LoaderOptions(world=world, progress=Progress(), device=None, non_blocking=False, split=False, even=True)
        loader = prepare_loader(loader, alone)
        loader.__dict__[KEY] = replace(loader.__dict__[KEY], by_hand=True)
    clone = object.__new__(type(loader))
    clone.__dict__.update(loader.__dict__)
    share: Share = loader.__dict__[KEY]
    clone.__dict__.update({"_iterator": None, KEY: replace(share, skip=share.skip + num_batches)})
    return clone


def set_even_batches(loader: Any, even: bool) -> bool | None:
    """
    Complete the rounds of a prepared loader, or not, from the next pass on.

    Returns:
        How it was; None where there is nothing to complete: a stream, a kept sampler, batches that are split.
    """
    indices = loader.__dict__[KEY].indices
    rules = getattr(indices, "rules", None)
    if rules is None:
        return None
    indices.rules = replace(rules, even=even)
    return bool(rules.even)


class _underneath(AbstractContextManager[None]):
    """
    While the iterator is built, the stream and its collate function take the place of the script's.

    With `quiet`, no random number of the script's is drawn: workers that persist would have been there already.
    """

    def __init__(self, loader: Any, share: Share, quiet: bool = False) -> None:
        self._attributes = loader.__dict__
        self._own = {name: self._attributes[name] for name in ("dataset", "collate_fn", "generator")}
        self._instead: dict[str, Any] = {}
        if share.stream is not None:
            collate = TaggedCollate(self._own["collate_fn"], loader.batch_sampler is not None)
            self._instead = {"dataset": share.stream, "collate_fn": collate}
        if quiet:  # the seed of the workers comes from elsewhere
            self._instead["generator"] = torch.Generator()

    def __enter__(self) -> None:
        self._attributes.update(self._instead)

    def __exit__(self, *_: object) -> None:
        self._attributes.update(self._own)


def _on_device(batches: Iterator[Any], options: LoaderOptions) -> Iterator[Any]:
    lazy = options.device is not None and kind_of(options.device).drives_all
    buckets = options.buckets if lazy else None
    for batch in batches:
        moved = sent(
            batch if buckets is None else padded(batch, buckets),
            options.device or torch.device("cpu"),
            options.non_blocking,
        )()
        if not options.world.alone:
            options.progress.moved(moved)
        yield moved
        if lazy:  # what the loop has asked for with this batch is run: its graph does not grow
            torch_spmd.sync()
