"""The group that collectives run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ..process import watch
from .shared import open_for_all, opened

_all_gather = getattr(dist, "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor")
"""The same operation under its newer and its older name."""
_HEAD = 62
"""How many numbers travel with the checksum; the others follow in an exchange of their own."""
_ROOM = 4096
"""Bytes behind the numbers, on the CPU, for what is small enough to need no exchange of its own."""
_FEW = 16
"""With more processes than these, room that is not used would cost more than it saves."""

_LARGE = 1 << 16
"""Bytes from which on memory that is shared is faster than a collective of gloo."""


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
        watch.note(kind, signature, tuple([tuple(t.shape) for t in tensors[:5]]))

    def finish(self, work: Any) -> None:
        """Wait for a collective; on the CPU not longer than all processes are on the same way."""
        if work is None:
            return
        if self.device.type == "cpu":
            watch.finish(work)
        else:
            work.wait()

    def gather_bytes(self, packed: torch.Tensor) -> torch.Tensor:
        """One row per rank; `packed` has the same length everywhere."""
        rows = torch.empty((self.size, packed.numel()), dtype=packed.dtype, device=packed.device)
        if packed.numel():
            self.finish(_all_gather(rows.view(-1), packed, async_op=True))
        return rows

    @property
    def _room(self) -> int:
        return _ROOM if self.device.type == "cpu" and self.size <= _FEW else 0

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
        own, shared = length_of(numbers), opened()
        packed = pack(max(own, self._room))
        if shared is not None:
            shared.lay(packed[:own])
        rows, early = self._gather_first(numbers, packed if own <= self._room else None)
        lengths = [own if row == numbers else length_of(row) for row in rows]
        longest = max(lengths)
        if longest <= self._room:
            return rows, early[:, :longest]
        if shared is not None:
            return rows, shared.take(packed, lengths, lambda: self.finish(dist.barrier(async_op=True)))
        if self.device.type == "cpu" and longest >= _LARGE:
            open_for_all(self.rank, self.gather_numbers)
        return rows, self.gather_bytes(packed if len(packed) == longest else pack(longest))

    def _gather_first(self, numbers: list[int], small: torch.Tensor | None) -> tuple[list[list[int]], torch.Tensor]:
        first, rest = numbers[:_HEAD], numbers[_HEAD:]
        mine = [watch.chain(), len(numbers), *first, *[0] * (_HEAD - len(first))]
        head = torch.tensor(mine, dtype=torch.int64).to(self.device)
        if self._room:
            behind = torch.zeros(self._room // 8, dtype=torch.int64) if small is None else small.view(torch.int64)
            head = torch.cat((head, behind))
        gathered = self.gather_bytes(head)
        rows: list[list[int]] = gathered[:, : len(mine)].tolist()
        if any(row[:2] != mine[:2] for row in rows):
            watch.disagreement()
        found = [row[2 : 2 + len(first)] for row in rows]
        if rest:
            more = self.gather_bytes(torch.tensor(rest, dtype=torch.int64).to(self.device)).tolist()
            found = [row + others for row, others in zip(found, more, strict=True)]
        return found, gathered[:, len(mine) :].view(torch.uint8)


class Imagined(World):
    """Processes that are not there: for the share that one of so many would get."""

    @property
    def speaks(self) -> bool:
        """Nobody can be reached."""
        return False
