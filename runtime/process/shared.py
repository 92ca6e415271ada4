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
from typing import TypeAlias

import torch

_PIECE = 1 << 22
"""Bytes that are laid out at once; every process holds twice as many."""

Exchange: TypeAlias = Callable[[list[int]], list[list[int]]]
"""Gives everybody the numbers of all ranks."""


class Shared:
    """
    The memory of all processes, as this one sees it.

    Two halves take turns, so that the processes need to meet only once for every piece, between laying it out and
    reading it: whoever comes to the meeting has read the piece before, and the half that it lay in may be written again
    after it.

    Args:
        areas: one for each rank, of uint8.
        rank: this process.
        meet: returns when all processes have called it.
    """

    def __init__(self, areas: list[torch.Tensor], rank: int, meet: Callable[[], None]) -> None:
        self._areas = [area.view(2, -1) for area in areas]
        self._rank = rank
        self._meet = meet
        self._half = 0

    def gather(self, packed: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        """
        One row per rank, of the length of the longest.

        Args:
            packed: the bytes of this process; there may be more than belong to it.
            lengths: how many bytes are whose. What is behind them in a row means nothing.
        """
        own = packed[: lengths[self._rank]]
        rows = packed.new_empty(len(lengths), max(lengths))
        rows[self._rank, : len(own)] = own
        for start in range(0, rows.shape[1], _PIECE):
            self._lay(own[start : start + _PIECE])
            self._meet()
            for rank, (area, length) in enumerate(zip(self._areas, lengths, strict=True)):
                if rank != self._rank and start < length:
                    here = min(length - start, _PIECE)
                    rows[rank, start : start + here] = area[self._half, :here]
        return rows

    def _lay(self, piece: torch.Tensor) -> None:
        self._half = 1 - self._half
        self._areas[self._rank][self._half, : len(piece)] = piece


def open_all(rank: int, exchange: Exchange, meet: Callable[[], None]) -> Shared | None:
    """
    The memory of all processes; None when some of them cannot reach that of the others. All of them call it together.

    Args:
        rank: this process.
        exchange: gives everybody the numbers of all ranks.
        meet: returns when all processes have called it.
    """
    token = random.SystemRandom().getrandbits(62)
    file = _make(token)
    areas = [_open(*told) for told in exchange([os.getpid(), file, token])]
    found = [area for area in areas if area is not None]
    agreed = all(complete for (complete,) in exchange([int(len(found) == len(areas))]))
    if file >= 0:
        os.close(file)
    return Shared(found, rank, meet) if agreed else None


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
