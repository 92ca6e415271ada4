"""
Memory that the processes of one machine read from one another.

A large tensor that travels through a socket is copied four times on its way, piece by piece. Here it is copied twice:
into memory of its process, and out of it by the others. The memory has no name, so that nothing of it is left behind,
however a process ends. Either all processes of a group use it, or none.
"""

from __future__ import annotations

import mmap
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

_PIECE = 1 << 22
"""Bytes that are laid out at once; every process holds twice as many."""

Exchange: TypeAlias = Callable[[list[int]], list[list[int]]]


class Shared:
    """
    The memory of all processes, as this one sees it.

    Two halves take turns, so that the processes need to meet only once for every piece, between `lay` and `take`:
    whoever comes to the meeting has read the piece before, and the half that it lay in may be written again after it.

    Args:
        areas: one for each rank, of uint8.
        rank: this process.
    """

    def __init__(self, areas: list[torch.Tensor], rank: int) -> None:
        self._areas = [area.view(2, -1) for area in areas]
        self._rank = rank
        self._half = 0

    def lay(self, packed: torch.Tensor) -> None:
        """Lay out the first piece of what the others will take."""
        self._half = 1 - self._half
        piece = packed[:_PIECE]
        self._areas[self._rank][self._half, : len(piece)] = piece

    def take(self, packed: torch.Tensor, lengths: list[int], meet: Callable[[], None]) -> torch.Tensor:
        """
        What all have laid out, one row per rank, of the length of the longest. All have met since `lay`.

        Args:
            packed: what this process has laid out the first piece of.
            lengths: how many bytes are whose. What is behind them in a row means nothing.
            meet: returns when all processes have called it.
        """
        rows = packed.new_empty(len(lengths), max(lengths))
        rows[self._rank, : lengths[self._rank]] = packed[: lengths[self._rank]]
        for start in range(0, rows.shape[1], _PIECE):
            if start:
                self.lay(packed[start:])
                meet()
            for rank, (area, length) in enumerate(zip(self._areas, lengths, strict=True)):
                if rank != self._rank and start < length:
                    here = min(length - start, _PIECE)
                    rows[rank, start : start + here] = area[self._half, :here]
        return rows


class _Known:
    """What was found out for a process group."""

    group: Any = None
    shared: Shared | None = None


def opened() -> Shared | None:
    """The memory of the processes of the default group, if `open_for_all` has been called and has found it."""
    return _Known.shared if _Known.group is dist.group.WORLD else None


def open_for_all(rank: int, exchange: Exchange) -> None:
    """
    Find out, once a group, whether all processes can reach the memory of one another. All of them call it together.

    Args:
        rank: this process.
        exchange: gives everybody the numbers of all ranks.
    """
    if _Known.group is not dist.group.WORLD:
        _Known.group, _Known.shared = dist.group.WORLD, _open_all(rank, exchange)


def _open_all(rank: int, exchange: Exchange) -> Shared | None:
    token = random.SystemRandom().getrandbits(62)
    file = _make(token)
    areas = [_open(*told) for told in exchange([os.getpid(), file, token])]
    found = [area for area in areas if area is not None]
    agreed = all(complete for (complete,) in exchange([int(len(found) == len(areas))]))
    if file >= 0:
        os.close(file)
    return Shared(found, rank) if agreed else None


def _make(token: int) -> int:
    """Memory as an open file; -1 where the system has none to give. All of it is there from the beginning."""
    if not hasattr(os, "memfd_create"):  # Linux has it
        return -1
    file = -1
    try:
        file = os.memfd_create(_name(token))
        os.posix_fallocate(file, 0, 2 * _PIECE)
    except OSError:
        if file >= 0:
            os.close(file)
        return -1
    return file


def _open(process: int, file: int, token: int) -> torch.Tensor | None:
    """The memory of a process; None when that is not of this machine, or not to be seen from here."""
    path = Path(f"/proc/{process}/fd/{file}")
    try:
        if _name(token) not in str(path.readlink()):  # the process is another machine's: here it is somebody else
            return None
        with path.open("r+b", buffering=0) as theirs:
            return torch.frombuffer(mmap.mmap(theirs.fileno(), 2 * _PIECE), dtype=torch.uint8)
    except OSError:
        return None


def _name(token: int) -> str:
    return f"torchlift-{token}"
