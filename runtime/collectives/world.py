"""The group that collectives run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ..process import watch

_all_gather = getattr(dist, "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor")
"""The same operation under its newer and its older name."""
_HEAD = 62
"""How many numbers travel with the checksum; the others follow in an exchange of their own."""


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

    def gather_numbers(self, numbers: list[int]) -> list[list[int]]:
        """
        The lists of whole numbers of all ranks; they have the same length everywhere.

        The first exchange of most collectives. It has the same size for all of them, and carries the checksum of
        everything so far, so that processes that have parted hear of it here, before a back end sees sizes that differ.

        Raises:
            CollectiveMismatch: the processes have parted.
        """
        first, rest = numbers[:_HEAD], numbers[_HEAD:]
        mine = [watch.chain(), len(numbers), *first, *[0] * (_HEAD - len(first))]
        rows = self._gather_equal(mine)
        if any(row[:2] != mine[:2] for row in rows):
            watch.disagreement()
        if not rest:
            return [row[2 : 2 + len(first)] for row in rows]
        return [row[2:] + more for row, more in zip(rows, self._gather_equal(rest), strict=True)]

    def _gather_equal(self, numbers: list[int]) -> list[list[int]]:
        mine = torch.tensor(numbers, dtype=torch.int64).to(self.device)
        rows: list[list[int]] = self.gather_bytes(mine).tolist()
        return rows


class Imagined(World):
    """Processes that are not there: for the share that one of so many would get."""

    @property
    def speaks(self) -> bool:
        """Nobody can be reached."""
        return False
