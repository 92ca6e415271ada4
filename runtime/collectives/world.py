"""The group that collectives run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ..process import links, watch
from ..process.links import Links
from ..types import Reduction

_all_gather = getattr(dist, "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor")
"""The same operation under its newer and its older name."""
_HEAD = 62
"""How many numbers travel with the checksum; the others follow in an exchange of their own."""
_ROOM = 4096
"""Bytes behind the numbers, on the CPU, for what is small enough to need no exchange of its own."""
_FEW = 16
"""With more processes than these, room that is not used would cost more than it saves; so would a line to each."""
_READ = 1 << 22
"""Bytes that every process may read of the others in order to add them up; gloo lets each add a part of them."""
_JOINING: dict[Reduction, tuple[Any, Callable[..., Any]]] = {
    Reduction.SUM: (dist.ReduceOp.SUM, torch.add),
    Reduction.MEAN: (dist.ReduceOp.SUM, torch.add),
    Reduction.MAX: (dist.ReduceOp.MAX, torch.maximum),
    Reduction.MIN: (dist.ReduceOp.MIN, torch.minimum),
    Reduction.PRODUCT: (dist.ReduceOp.PRODUCT, torch.mul),
}


@dataclass(frozen=True)
class World:
    """All processes of a job, and the device whose tensors they exchange."""

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
            CollectiveMismatch: the processes have parted already.
        """
        signature = ",".join([f"{t.dtype}{tuple(t.shape) if equal else t.dim()}" for t in tensors])
        usual = torch.float32
        shown = [tuple(t.shape) if t.dtype is usual else f"{list(t.shape)} {t.dtype}" for t in tensors[:5]]
        watch.note(kind, signature, tuple(shown))

    def finish(self, work: Any) -> None:
        """Wait for a collective; on the CPU not longer than all processes are on the same way."""
        if work is None:
            return
        if self.device.type == "cpu":
            watch.finish(work)
        else:
            work.wait()

    def gather_rows(self, packed: torch.Tensor) -> torch.Tensor:
        """One row per rank; `packed` has one dimension, and the same length everywhere."""
        if not packed.numel():
            return packed.new_empty(self.size, 0)
        lines = self._lines(packed.numel() * packed.dtype.itemsize)
        if lines is None:
            return self._through_torch(packed)
        data = packed.view(torch.uint8)
        return lines.gather(data, [len(data)] * self.size).view(packed.dtype)

    def reduce(self, flat: torch.Tensor, word: Reduction = Reduction.SUM) -> None:
        """
        Join every element with those of the other ranks, in place; all of them get the same bits.

        Args:
            flat: one dimension, as long everywhere; of a type that every back end can join.
            word: how; the mean is left as a sum.
        """
        operation, join = _JOINING[word]
        taken = flat.numel() * flat.dtype.itemsize
        misses_nan = word in (Reduction.MAX, Reduction.MIN)  # in back ends, depending on whose it is
        if taken * self.size <= _READ and (misses_nan or self._lines(taken) is not None):
            first, *others = self.gather_rows(flat)
            for row in others:
                join(first, row, out=first)
            flat.copy_(first)
        elif taken:
            self.finish(dist.all_reduce(flat, operation, async_op=True))

    def broadcast_bytes(self, packed: torch.Tensor, source: int) -> torch.Tensor:
        """Those of one rank; `packed` has the same length everywhere, and may be written to."""
        if not len(packed):
            return packed
        lines = self._lines(len(packed), large=False)
        if lines is not None:
            return lines.scatter([packed] * self.size if self.rank == source else None, len(packed), source)
        self.finish(dist.broadcast(packed, source, async_op=True))
        return packed

    def scatter_bytes(self, parts: list[torch.Tensor] | None, length: int) -> torch.Tensor:
        """
        What rank 0 has for this rank.

        Args:
            parts: on rank 0, what it has for each rank; None elsewhere.
            length: of a part in bytes, the same for all, and everywhere.
        """
        lines = self._lines(length, large=False)
        if lines is not None:
            return lines.scatter(parts, length, 0)
        mine = torch.empty(length, dtype=torch.uint8, device=self.device)
        here = None if parts is None else [one.to(self.device) for one in parts]
        self.finish(dist.scatter(mine, here, 0, async_op=True))
        return mine

    def _lines(self, length: int, large: bool = True) -> Links | None:
        """What so many bytes travel by between the processes of one machine; None: by torch's back end, as anywhere."""
        if not self._few:
            return None
        lines = links.open_for_all(self.rank, self._numbers_through_torch)
        carried = lines is not None and (length <= links.SMALL or (large and lines.large()))
        return lines if carried else None

    def _through_torch(self, packed: torch.Tensor) -> torch.Tensor:
        rows = torch.empty((self.size, packed.numel()), dtype=packed.dtype, device=packed.device)
        self.finish(_all_gather(rows.view(-1), packed, async_op=True))
        return rows

    def _numbers_through_torch(self, numbers: list[int]) -> list[list[int]]:
        rows: list[list[int]] = self._through_torch(torch.tensor(numbers, device=self.device)).tolist()
        return rows

    @property
    def _few(self) -> bool:
        """What is done for few processes on the CPU pays."""
        return self.device.type == "cpu" and self.size <= _FEW

    @property
    def _room(self) -> int:
        return _ROOM if self._few else 0

    def gather_numbers(self, numbers: list[int]) -> list[list[int]]:
        """
        The lists of whole numbers of all ranks; they have the same length everywhere.

        The first exchange of most collectives. It has the same size for all of them, and carries the checksum of
        everything so far, so that processes that have parted hear of it here, before a back end sees sizes that differ.

        Raises:
            CollectiveMismatch: the processes have parted.
        """
        return self._gather_first(numbers, None)[0]

    def gather_packs(
        self, numbers: list[int], length_of: Callable[[list[int]], int], pack: Callable[[int], torch.Tensor]
    ) -> tuple[list[list[int]], torch.Tensor]:
        """
        Runs of bytes of all ranks, and the numbers that tell what is in them. Small ones travel with the numbers.

        Args:
            numbers: as many on all ranks.
            length_of: how many bytes belong to such numbers.
            pack: lays those of this rank at the beginning of a uint8 tensor of a length.

        Returns:
            The numbers of all ranks; and their bytes, one row per rank, of the length of the longest.

        Raises:
            CollectiveMismatch: the processes have parted.
        """
        own = length_of(numbers)
        packed = pack(max(own, self._room))
        rows, early = self._gather_first(numbers, packed if own <= self._room else None)
        lengths = [own if row == numbers else length_of(row) for row in rows]
        longest = max(lengths)
        if longest <= self._room:
            return rows, early[:, :longest]
        lines = self._lines(longest)
        if lines is not None:
            return rows, lines.gather(packed, lengths)
        return rows, self._through_torch(packed if len(packed) == longest else pack(longest))

    def _gather_first(self, numbers: list[int], small: torch.Tensor | None) -> tuple[list[list[int]], torch.Tensor]:
        first, rest = numbers[:_HEAD], numbers[_HEAD:]
        mine = [watch.chain(), len(numbers), *first, *[0] * (_HEAD - len(first))]
        head = torch.tensor(mine, dtype=torch.int64).to(self.device)
        if self._room:
            behind = torch.zeros(self._room // 8, dtype=torch.int64) if small is None else small.view(torch.int64)
            head = torch.cat((head, behind))
        gathered = self.gather_rows(head)
        rows: list[list[int]] = gathered[:, : len(mine)].tolist()
        if any(row[:2] != mine[:2] for row in rows):
            watch.disagreement()
        found = [row[2 : 2 + len(first)] for row in rows]
        if rest:
            more = self.gather_rows(torch.tensor(rest, dtype=torch.int64).to(self.device)).tolist()
            found = [row + others for row, others in zip(found, more, strict=True)]
        return found, gathered[:, len(mine) :].view(torch.uint8)


class Imagined(World):
    """Processes that are not there: for the share that one of so many would get."""

    @property
    def speaks(self) -> bool:
        """Nobody can be reached."""
        return False
