"""The group that collectives run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ..process import watched_calls
from ..types import Reduction

_ALL_GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
"""The same operation under its newer and its older name."""
_HEAD = 61
"""How many numbers travel with the checksum; the others follow in an exchange of their own."""
_MORE = 2
"""Which number of a head says that other exchanges of the same collective follow."""
_ROOM = 1 << 16
"""Bytes of all ranks together, on the CPU, for what is small enough to travel with the numbers."""
_ALIGNED = 64
"""Runs of bytes begin at multiples of this: they can be viewed as any type."""
_FEW = 16
"""With more processes than these, room that is not used would cost more than it saves."""
_READ = 1 << 22
"""Bytes of the other ranks that a process reads at once in order to compare them."""
_JOINING: dict[Reduction, tuple[Any, Callable[..., Any]]] = {
    Reduction.SUM: (dist.ReduceOp.SUM, torch.add),
    Reduction.SUM_OF_MEANS: (dist.ReduceOp.SUM, torch.add),
    Reduction.MEAN: (dist.ReduceOp.SUM, torch.add),
    Reduction.MAX: (dist.ReduceOp.MAX, torch.maximum),
    Reduction.MIN: (dist.ReduceOp.MIN, torch.minimum),
    Reduction.PRODUCT: (dist.ReduceOp.PRODUCT, torch.mul),
}


@dataclass(frozen=True)
class World:
    """
    All processes of a job, and the device whose tensors they exchange.

    Every collective begins with an exchange whose size is the same for all collectives. It carries the checksum of
    everything so far, so that a collective mismatch is reported before a back end sees sizes that differ: gloo
    ends the process at those. What is small travels with it, and most collectives need no other exchange.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def alone(self) -> bool:
        """There is nobody to exchange anything with."""
        return self.size == 1

    @property
    def speaks(self) -> bool:
        """The processes can be reached."""
        return True

    def note(self, kind: str, tensors: Sequence[torch.Tensor] = (), equal: bool = False) -> None:
        """
        Say which collective comes next, so that processes that ask for different ones get an error.

        Args:
            kind: which one.
            tensors: their types and numbers of dimensions must be alike on all processes.
            equal: their shapes, too.

        Raises:
            CollectiveMismatch: the processes already made different calls.
        """
        signature = ",".join([f"{t.dtype}{tuple(t.shape) if equal else t.dim()}" for t in tensors])
        usual = torch.float32
        shown = [tuple(t.shape) if t.dtype is usual else f"{list(t.shape)} {t.dtype}" for t in tensors[:5]]
        watched_calls.note(kind, signature, tuple(shown))

    def gather_numbers(self, numbers: list[int]) -> list[list[int]]:
        """
        The lists of whole numbers of all ranks; they have the same length everywhere.

        Raises:
            CollectiveMismatch: the processes made different calls.
        """
        return self._exchange(numbers, None, False)[0]

    def gather_packs(
        self, numbers: list[int], length_of: Callable[[list[int]], int], pack: Callable[[int], torch.Tensor]
    ) -> tuple[list[list[int]], torch.Tensor]:
        """
        Runs of bytes of all ranks, and the numbers that tell what is in them.

        Args:
            numbers: as many on all ranks.
            length_of: how many bytes belong to such numbers.
            pack: lays those of this rank at the beginning of a uint8 tensor of a length.

        Returns:
            The numbers of all ranks; and their bytes, one row per rank, of the length of the longest.

        Raises:
            CollectiveMismatch: the processes made different calls.
        """
        own = length_of(numbers)
        packed = pack(max(own, self._room))
        fits = own <= self._room
        rows, early = self._exchange(numbers, packed if fits else None, not fits)
        longest = max([own if row == numbers else length_of(row) for row in rows])
        if longest <= self._room:
            return rows, early[:, :longest]
        late = self._gather_rows(packed if len(packed) == longest else pack(longest))
        watched_calls.done()
        return rows, late

    def reduce(self, flats: list[torch.Tensor], word: Reduction, counts: list[int]) -> list[list[int]]:
        """
        Join every element with those of the other ranks, in place; all of them get the same bits.

        Args:
            flats: of one dimension, and of types that every back end can join.
            word: how; the mean is left as a sum.
            counts: how many elements make up the flats, as the script sees them.

        Returns:
            The counts of all ranks. Where they differ nothing was joined.

        Raises:
            CollectiveMismatch: the processes made different calls.
        """
        data = [flat.view(torch.uint8) for flat in flats]
        taken = [len(one) for one in data]
        fits = sum(taken) <= self._room
        small = _padded(torch.cat(data), self._room) if fits and data else None
        rows, early = self._exchange(counts, small, True)  # who does not get to the end has other values than the rest
        if all(row == counts for row in rows):
            pieces = early[:, : sum(taken)].split(taken, dim=1) if fits else data  # type: ignore[no-untyped-call]
            for flat, piece in zip(flats, pieces, strict=True):
                if fits:
                    _join(list(piece.clone().view(flat.dtype)), word, flat)
                else:
                    self._reduce_large(flat, word)
        watched_calls.done()
        return rows

    def _reduce_large(self, flat: torch.Tensor, word: Reduction) -> None:
        if word in (Reduction.MAX, Reduction.MIN) and flat.is_floating_point():
            # back ends miss a NaN, depending on whose it is
            for piece in flat.split(max(1, _READ // self.size // flat.dtype.itemsize)):  # type: ignore[no-untyped-call]
                _join(list(self._gather_rows(piece)), word, piece)
        elif flat.numel():
            self._finish(dist.all_reduce(flat, _JOINING[word][0], async_op=True))

    def broadcast_bytes(self, mine: torch.Tensor | None, source: int) -> torch.Tensor:
        """
        The bytes of one rank, on all of them.

        Args:
            mine: on that rank; None elsewhere. May be what is returned.
            source: that rank.

        Raises:
            CollectiveMismatch: the processes made different calls.
        """
        length = 0 if mine is None else len(mine)
        fits = length <= self._room
        small = None if mine is None or not fits else _padded(mine, self._room)
        rows, early = self._exchange([length], small, not fits)
        length = rows[source][0]
        if length <= self._room:
            return early[source, :length].clone()
        packed = torch.empty(length, dtype=torch.uint8, device=self.device) if mine is None else mine
        self._finish(dist.broadcast(packed, source, async_op=True))
        watched_calls.done()
        return packed

    def broadcast_into(self, packed: torch.Tensor, source: int) -> None:
        """
        Overwrite bytes by those of one rank, without asking first whether all are here: that rank waits for nobody.

        For what follows an exchange that all have taken part in. Processes that make other calls are found as they are
        in a backward pass: by the watch, or at the next exchange that begins with numbers.

        Args:
            packed: as many on all ranks.
            source: that rank.
        """
        self._finish(dist.broadcast(packed, source, async_op=True))
        watched_calls.done()

    def scatter_bytes(self, numbers: list[int], parts: list[torch.Tensor] | None) -> tuple[list[int], torch.Tensor]:
        """
        What rank 0 has for this rank, and what it tells all.

        Args:
            numbers: what all are told; on other ranks as many, whatever they are.
            parts: on rank 0, the bytes for each rank; None elsewhere.

        Returns:
            The numbers of rank 0; and the bytes, with others after them that mean nothing.

        Raises:
            CollectiveMismatch: the processes made different calls.
        """
        length = -(-max(map(len, parts)) // _ALIGNED) * _ALIGNED if parts else 0
        fits = length * self.size <= self._room
        padded = None if parts is None else [_padded(one.to(self.device), length) for one in parts]
        small = _padded(torch.cat(padded), self._room) if padded and fits else None
        ((length, *told), *_), early = self._exchange([length, *numbers], small, not fits)
        if length * self.size <= self._room:
            return told, early[0, self.rank * length : (self.rank + 1) * length].clone()
        mine = torch.empty(length, dtype=torch.uint8, device=self.device)
        self._finish(dist.scatter(mine, padded, 0, async_op=True))
        watched_calls.done()
        return told, mine

    @property
    def _room(self) -> int:
        """Bytes of every rank that travel with its numbers."""
        return _ROOM // self.size // _ALIGNED * _ALIGNED if self.device.type == "cpu" and self.size <= _FEW else 0

    def _exchange(
        self, numbers: list[int], small: torch.Tensor | None, more: bool
    ) -> tuple[list[list[int]], torch.Tensor]:
        """
        The exchange that every collective begins with.

        Args:
            numbers: as many on all ranks.
            small: as many bytes as there is room; None for nothing.
            more: the collective is not over with it, as far as this rank knows. It is not where one of them knows.

        Returns:
            The numbers of all ranks, and their bytes.
        """
        first, rest = numbers[:_HEAD], numbers[_HEAD:]
        mine = [watched_calls.chain(), len(numbers), int(more), *first, *[0] * (_HEAD - len(first))]
        head = torch.tensor(mine, dtype=torch.int64).to(self.device)
        if self._room:
            after = torch.zeros(self._room // 8, dtype=torch.int64) if small is None else small.view(torch.int64)
            head = torch.cat((head, after))
        gathered = self._gather_rows(head, lambda rows: bool(rest) or any(rows[:, _MORE].tolist()))
        rows: list[list[int]] = gathered[:, : len(mine)].tolist()
        if any(row[:_MORE] != mine[:_MORE] for row in rows):
            watched_calls.disagreement()
        found = [row[_MORE + 1 :][: len(first)] for row in rows]
        if rest:
            others = self._gather_rows(torch.tensor(rest, dtype=torch.int64).to(self.device)).tolist()
            found = [row + other for row, other in zip(found, others, strict=True)]
        if not any(row[_MORE] for row in rows):
            watched_calls.done()
        return found, gathered[:, len(mine) :].view(torch.uint8)

    def _gather_rows(self, packed: torch.Tensor, more: Callable[[torch.Tensor], bool] = lambda _: True) -> torch.Tensor:
        """One row per rank; `packed` has one dimension, and the same length everywhere."""
        rows = torch.empty((self.size, packed.numel()), dtype=packed.dtype, device=packed.device)
        work = getattr(dist, _ALL_GATHER)(rows.view(-1), packed, async_op=True)
        self._finish(work, lambda: more(rows))
        return rows

    def _finish(self, work: Any, more: Callable[[], bool] = lambda: True) -> None:
        """Wait for an exchange; on the CPU not longer than all processes are on the same way."""
        if self.device.type == "cpu":
            watched_calls.finish(work, more)
        else:
            work.wait()


def _padded(packed: torch.Tensor, length: int) -> torch.Tensor:
    return torch.nn.functional.pad(packed, (0, length - len(packed)))


def _join(rows: Sequence[torch.Tensor], word: Reduction, into: torch.Tensor) -> None:
    """In the order of the ranks, on all of them."""
    first, *others = rows
    for row in others:
        _JOINING[word][1](first, row, out=first)
    into.copy_(first)


class Imagined(World):
    """Processes that do not exist: for the shard that one of so many would get."""

    @property
    def speaks(self) -> bool:
        """Nobody can be reached."""
        return False
