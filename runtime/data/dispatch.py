"""
Reading on one process for all.

Rank 0 reads, cuts every batch, and sends each process its rows in one packed scatter. What a batch looks like is sent
only when it changes; on the CPU, rank 0 keeps its own rows as they are. With workers, reading and packing go on in a
thread while the step runs.
"""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..collectives.packing import pack, unpack
from ..collectives.world import World
from ..device.placement import is_container, map_items, map_tree, tensors_in
from ..errors import CollectiveError
from .iterable import Tagged, rows_of
from .samplers import Drawn
from .shares import Shares, split_rows, uniform, weighted

_AHEAD = 2
_END, _BATCH, _FAILED = 0, 1, 2


@dataclass(frozen=True)
class _Slot:
    """What replaces a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class _Parcel:
    """One step, ready to be sent: for every process its bytes, and what they look like; and the rows of rank 0."""

    own: Any
    contents: list[torch.Tensor]
    looks: list[bytes]
    shares: Shares
    last: bool = False


class Dispatched:
    """
    An iterator over the rows of this process.

    Args:
        batches: the script's batches, on rank 0; None elsewhere.
        world: the processes.
        split: every batch is shared; else a round of N batches is, one for each process.
        threaded: read ahead in a thread (the batches come from workers; nothing is drawn in this process).
    """

    def __init__(self, batches: Any, world: World, split: bool, threaded: bool) -> None:
        self.read = batches
        """The script's batches."""
        self.last = False
        """The batch in hand is the last one."""
        self._world = world
        self._splits = split
        self._looks = b""
        self._sent = [b""] * world.size
        self._kept = batches is not None and world.device.type == "cpu"
        """This process keeps its rows as they were read."""
        self._parcels: Iterator[_Parcel] | None = None
        if batches is not None:
            steps = _split(batches, world.size) if split else _rounds(batches, world.size)
            parcels = (_parcel(parts, shares, self._kept) for parts, shares in steps)
            drawn = getattr(batches, "_sampler_iter", None)
            plain = split and isinstance(drawn, Drawn) and not threaded
            told = _told_by_indices(parcels, drawn) if plain else _told(parcels)
            self._parcels = _ahead(told) if threaded else told

    @classmethod
    def of_parts(cls, steps: Iterator[tuple[list[Any], Shares]] | None, world: World) -> Dispatched:
        """An iterator over what is cut already: for each step the part of every process, on rank 0; None elsewhere."""
        made = cls(None, world, split=True, threaded=False)
        if steps is not None:
            made._kept = kept = world.device.type == "cpu"
            made._parcels = _told(_parcel(parts, shares, kept) for parts, shares in steps)
        return made

    def __iter__(self) -> Dispatched:
        return self

    def __next__(self) -> Tagged:
        self._world.note("reading for all processes")
        if self._parcels is None:
            return self._receive()
        try:
            parcel = next(self._parcels, None)
        except Exception:
            self._scatter([_FAILED])  # the others must not wait for a batch that is not coming
            raise
        if parcel is None:
            self._scatter([_END])
            raise StopIteration
        return self._send(parcel)

    def _scatter(self, header: list[int], contents: list[torch.Tensor] | None = None) -> tuple[list[int], torch.Tensor]:
        """
        Send every process the header and its contents.

        Args:
            header: on rank 0.
            contents: on rank 0, of every process; None where there are none.

        Returns:
            The header, and the contents of this process.
        """
        length = 2 + 4 * self._world.size
        return self._world.scatter_bytes(header + [0] * (length - len(header)), contents)

    def _send(self, parcel: _Parcel) -> Tagged:
        news = [b"" if look == sent else look for look, sent in zip(parcel.looks, self._sent, strict=True)]
        self._sent = parcel.looks
        full = [
            torch.cat([content, torch.frombuffer(bytearray(new), dtype=torch.uint8)]) if new else content
            for content, new in zip(parcel.contents, news, strict=True)
        ]
        starts, sizes = [len(content) for content in parcel.contents], [len(new) for new in news]
        self.last = parcel.last
        header = [_BATCH, int(parcel.last), *parcel.shares.rows, *parcel.shares.valid, *starts, *sizes]
        _, mine = self._scatter(header, full)
        return Tagged(parcel.own if self._kept else _unpacked(parcel.looks[0], mine), parcel.shares)

    def _receive(self) -> Tagged:
        size = self._world.size
        (kind, last, *numbers), mine = self._scatter([])
        if kind == _END:
            raise StopIteration
        if kind == _FAILED:
            raise CollectiveError("rank 0 reads for all processes and failed to read a batch: see its error.")
        self.last = bool(last)
        rows, valid, starts, sizes = (numbers[i * size : (i + 1) * size] for i in range(4))
        if new := sizes[self._world.rank]:
            start = starts[self._world.rank]
            self._looks = mine[start : start + new].cpu().numpy().tobytes()
        return Tagged(_unpacked(self._looks, mine), _shares(tuple(rows), tuple(valid), self._splits))


def _shares(rows: tuple[int, ...], valid: tuple[int, ...], split: bool) -> Shares:
    """What rank 0 knows of a step, from the numbers that it sends: in a round every process counts alike."""
    if split or rows == valid:
        return weighted(rows, valid, cut=split)
    return Shares(rows, valid, (1.0,) * len(rows)) if len(set(rows)) == 1 and all(rows) else weighted(rows, valid)


def _split(batches: Any, size: int) -> Iterator[tuple[list[Any], Shares]]:
    for batch in batches:
        if _unclear([batch]) and any(map(_one_tensor_a_row, _items(batch))):
            raise CollectiveError(
                "rank 0 reads a batch for all processes, but cannot split it: its tensors have different first "
                "dimensions, and it contains a list of tensors. Stack them to one row per sample, or leave out "
                "split_batches or dispatch_batches: every process then reads its own rows."
            )
        rows = rows_of(batch) or 1
        runs, shares = split_rows(rows, size)
        yield [cut(batch, start, end, rows) for start, end in runs], shares


def _rounds(batches: Any, size: int) -> Iterator[tuple[list[Any], Shares]]:
    """Batches in turn; the last round is completed with rows of the first one."""
    first: Any = None
    waiting: list[Any] = []
    for batch in batches:
        if first is None:  # rank 0 hands it out, and the script may write into it
            first = map_tree(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, batch)
        if len(waiting) == size:  # of unequal lengths, and not the last round
            rows = tuple([rows_of(one) or 1 for one in waiting])
            yield waiting, weighted(rows, rows)
            waiting = []
        waiting.append(batch)
        if len(waiting) == size and (_unclear(waiting) or len({rows_of(one) or 1 for one in waiting}) == 1):
            yield waiting, uniform(rows_of(waiting[0]) or 1, size)
            waiting = []
    if waiting:
        yield _completed(waiting, first, size)


def _unclear(batches: list[Any]) -> bool:
    """Tensors of a batch have different first dimensions (a list of pictures, for one): its rows cannot be told."""
    return any(len({len(one) for one in tensors_in(batch) if one.dim()}) > 1 for batch in batches)


def _items(batch: Any) -> list[Any]:
    if isinstance(batch, Mapping):
        return list(batch.values())
    return list(batch) if isinstance(batch, (list, tuple)) else []


def _one_tensor_a_row(item: Any) -> bool:
    """A list of tensors, or of dicts of them: perhaps one for each row."""
    return isinstance(item, (list, tuple)) and any(isinstance(one, (torch.Tensor, Mapping)) for one in item)


def _completed(waiting: list[Any], first: Any, size: int) -> tuple[list[Any], Shares]:
    have = rows_of(first) or 1
    if _unclear([first, *waiting]) or not all(map(rows_of, [first, *waiting])):  # as a whole, then
        missing = size - len(waiting)
        return [*waiting, *[first] * missing], Shares(
            (have,) * size, (have,) * len(waiting) + (0,) * missing, (1.0,) * size
        )
    valid = tuple([rows_of(one) or 1 for one in waiting] + [0] * (size - len(waiting)))
    wanted = max(have, *valid)
    parts = []
    for rank, own in enumerate(valid):
        part = waiting[rank] if own else None
        while (missing := wanted - (rows_of(part) or 0 if part is not None else 0)) > 0:
            filler = cut(first, 0, missing, have)
            longer = filler if part is None else join(part, filler)
            if (rows_of(longer) or 0) <= (0 if part is None else rows_of(part) or 0):
                raise CollectiveError(
                    f"rank 0 reads for all processes, but cannot complete the last batches: a {type(first).__name__} "
                    "cannot be concatenated. Pass drop_last=True to the loader, or leave out dispatch_batches."
                )
            part = longer
        parts.append(part)
    return parts, Shares((wanted,) * size, valid, (1.0,) * size)


def _row_list(tree: Any, rows: int) -> bool:
    """A list with one thing that is no tensor for each row (texts, for one)."""
    plain = type(tree) in (list, tuple) and len(tree) == rows
    return plain and not any(isinstance(one, torch.Tensor) or is_container(one) for one in tree)


def cut(tree: Any, start: int, end: int, rows: int) -> Any:
    """Rows `start` to `end` of every tensor, and of every list with one entry a row."""
    if isinstance(tree, torch.Tensor):
        return tree[start:end] if tree.dim() and tree.shape[0] == rows else tree
    if _row_list(tree, rows):
        return tree[start:end]
    return map_items(lambda one: cut(one, start, end, rows), tree) if is_container(tree) else tree


def join(one: Any, other: Any) -> Any:
    """Two batches of the same kind, one after the other."""
    if isinstance(one, torch.Tensor):
        return torch.cat([one, other]) if one.dim() else one
    if type(one) in (list, tuple) and _row_list(one, len(one)):
        return one + other
    return map_items(join, one, other) if is_container(one) else one


def _parcel(parts: list[Any], shares: Shares, kept: bool) -> _Parcel:
    """With `kept`, rank 0 sends nothing to itself."""
    contents: list[torch.Tensor] = []
    looks: list[bytes] = []
    for part in parts:
        if kept and not contents:
            contents.append(torch.empty(0, dtype=torch.uint8))
            looks.append(b"")
            continue
        tensors: list[torch.Tensor] = []

        def slot(leaf: Any, tensors: list[torch.Tensor] = tensors) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            tensors.append(leaf)
            return _Slot(tuple(leaf.shape), leaf.dtype)

        look = map_tree(slot, part)
        contents.append(pack([tensor.cpu() for tensor in tensors], torch.device("cpu")))
        looks.append(pickle.dumps(look))
    return _Parcel(parts[0], contents, looks, shares)


def _unpacked(look: bytes, mine: torch.Tensor) -> Any:
    """From a process of this job, as trusted as this one."""
    tree = pickle.loads(look)
    slots: list[_Slot] = []

    def note(leaf: Any) -> Any:
        if isinstance(leaf, _Slot):
            slots.append(leaf)
        return leaf

    map_tree(note, tree)
    tensors = iter(unpack(mine, [one.shape for one in slots], [one.dtype for one in slots]))
    return map_tree(lambda leaf: next(tensors) if isinstance(leaf, _Slot) else leaf, tree)


def _told(parcels: Iterator[_Parcel]) -> Iterator[_Parcel]:
    """The last one says so: it is found out by reading one ahead."""
    parcel = next(parcels, None)
    while parcel is not None:
        following = next(parcels, None)
        parcel.last = following is None
        yield parcel
        parcel = following


def _told_by_indices(parcels: Iterator[_Parcel], drawn: Any) -> Iterator[_Parcel]:
    """The same, where every batch is a parcel, without reading ahead: that may draw random numbers."""
    for parcel in parcels:
        parcel.last = not drawn.more()
        yield parcel


def _ahead(parcels: Iterator[_Parcel]) -> Iterator[_Parcel]:
    """Read in a thread, a few parcels ahead; it ends with the iterator."""
    waiting: queue.Queue[Any] = queue.Queue(_AHEAD)
    left = threading.Event()

    def put(item: Any) -> bool:
        while not left.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def read() -> None:
        try:
            for parcel in parcels:
                if not put(parcel):
                    return
            put(None)
        except BaseException as error:  # noqa: BLE001  # raised again where the script asks for the batch
            put(error)

    threading.Thread(target=read, name="torchlift dispatch", daemon=True).start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        left.set()
