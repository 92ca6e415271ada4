"""
Lines between the processes of one machine.

gloo hands every exchange to threads of its own, which takes ten times as long as it takes a socket of this machine to
carry a few bytes. So every process has such a socket to every other; what is large lies in memory that all of them can
read. Either all processes can be reached, or none is.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist

from ..errors import CollectiveError
from . import watch
from .shared import Exchange, Shared, open_all

SMALL = 1 << 16
"""Bytes for a socket at once: fewer than it takes in while nobody reads, so that nobody waits in order to send."""
_HEAD = struct.Struct("=qq")
"""In front of every message: the number of the exchange that it belongs to, and how many bytes follow."""
_HELLO = struct.Struct("=qq")
_STRANGER_SECONDS = 1.0
_NOTHING = torch.empty(0, dtype=torch.uint8)
_IN_FLIGHT = 3 * SMALL
"""Bytes that one process may send before another reads: it may be one exchange ahead, and the system keeps its own."""
_TRIGGER = (
    "A handler of a signal should only call accelerator.set_trigger(); ask for it between two steps with "
    "accelerator.check_trigger()."
)

T = TypeVar("T")


class Links:
    """
    A socket to every other process.

    One exchange at a time. A script that is interrupted while it waits for a message may go on. After anything else
    that ends an exchange in its middle there is no other one, for nobody would know what belongs to which.

    Args:
        peers: by rank.
        rank: this process.
        limit: seconds after which a process that does not come is an error.
    """

    def __init__(self, peers: dict[int, socket.socket], rank: int, limit: float) -> None:
        self._peers = peers
        self._rank = rank
        self._limit = limit
        self._number = 0
        """Of the exchange that this process is in, or was in the last time."""
        self._turn = threading.RLock()
        self._halted = ""
        """Why there can be no other exchange now; empty as long as there can."""
        self._awaited = bytearray(b"-")
        """Zeros while this process waits for the first byte of a message."""
        self._looked = False
        self._memory: Shared | None = None
        for peer in peers.values():
            peer.settimeout(watch.PERIOD.total_seconds())

    def large(self) -> bool:
        """Whether more than `SMALL` can be gathered, too. All processes ask together."""
        with self._turn:
            if not self._looked:
                self._memory = open_all(self._rank, self._numbers, self._meet)
                self._looked = True
        return self._memory is not None

    def gather(self, packed: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        """
        One row per rank, of the length of the longest.

        Args:
            packed: the bytes of this process, on the CPU; there may be more than belong to it.
            lengths: how many bytes are whose. What is behind them in a row means nothing.

        Raises:
            CollectiveMismatch: the processes have parted.
            CollectiveError: one of them has ended, or does not come; or an exchange was ended in its middle.
        """
        return self._whole(lambda: self._gather(packed, lengths))

    def _gather(self, packed: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        longest = max(lengths)
        if longest > SMALL and self._memory is not None:
            return self._memory.gather(packed, lengths)
        rows = torch.empty((len(lengths), longest), dtype=torch.uint8)
        own = packed[: lengths[self._rank]]
        rows[self._rank, : len(own)] = own
        self._number += 1
        message = self._message(own)
        for rank in self._peers:
            self._send(rank, message)
        for rank in self._peers:
            self._receive(rank, rows[rank, : lengths[rank]])
        return rows

    def scatter(self, parts: Sequence[torch.Tensor] | None, length: int, source: int) -> torch.Tensor:
        """
        What a rank has for this one. Raises what `gather` raises.

        Args:
            parts: on that rank, what it has for each; None elsewhere.
            length: of a part in bytes, the same for all, and not more than `SMALL`.
            source: that rank.
        """
        return self._whole(lambda: self._scatter(parts, length, source))

    def _scatter(self, parts: Sequence[torch.Tensor] | None, length: int, source: int) -> torch.Tensor:
        self._number += 1
        if parts is None:
            mine = torch.empty(length, dtype=torch.uint8)
            self._send(source, self._message(_NOTHING))
            self._receive(source, mine)
        else:
            mine = parts[source]
            for rank in self._peers:  # who runs ahead does not hear that the others are elsewhere
                self._receive(rank, _NOTHING)
            for rank in self._peers:
                self._send(rank, self._message(parts[rank]))
        return mine

    def _meet(self) -> None:
        """Return when all processes have called it, in the middle of an exchange."""
        self._gather(_NOTHING, [0] * (len(self._peers) + 1))

    def _whole(self, exchange: Callable[[], T]) -> T:
        with self._turn:  # other threads wait; a handler of a signal comes in
            if self._halted:
                raise CollectiveError(f"the processes cannot exchange anything here: {self._halted}")
            self._halted = f"this process is in the middle of another exchange. {_TRIGGER}"
            try:
                found = exchange()
            except BaseException as error:
                self._halted = ""
                if isinstance(error, CollectiveError):
                    self._halted = f"another exchange has failed before ({error})"
                elif any(self._awaited):
                    self._halted = f"another one was left in its middle ({type(error).__name__}). {_TRIGGER}"
                if self._halted:
                    self.close()
                raise
            finally:
                self._awaited = bytearray(b"-")
            self._halted = ""
        watch.done()
        return found

    def close(self) -> None:
        """Who waits for this process hears that it has gone."""
        self._memory = None
        for peer in self._peers.values():
            peer.close()

    def _numbers(self, numbers: list[int]) -> list[list[int]]:
        packed = torch.tensor(numbers).view(torch.uint8)
        rows = self.gather(packed, [len(packed)] * (len(self._peers) + 1))
        told: list[list[int]] = rows.view(torch.int64).tolist()
        return told

    def _send(self, rank: int, message: bytes) -> None:
        self._through(rank, self._peers[rank].send, memoryview(message))

    def _message(self, packed: torch.Tensor) -> bytes:
        return _HEAD.pack(self._number, len(packed)) + packed.numpy().tobytes()

    def _receive(self, rank: int, row: torch.Tensor) -> None:
        number, length = self._head(rank)
        while number < self._number:  # the script was interrupted in the middle of that one, and goes on
            self._through(rank, self._peers[rank].recv_into, memoryview(bytearray(length)))
            number, length = self._head(rank)
        if (number, length) != (self._number, len(row)):
            watch.disagreement()
        self._through(rank, self._peers[rank].recv_into, row.numpy().data)

    def _head(self, rank: int) -> tuple[int, int]:
        self._awaited = head = bytearray(_HEAD.size)
        self._through(rank, self._peers[rank].recv_into, memoryview(head))
        number, length = _HEAD.unpack(head)
        return number, length

    def _through(self, rank: int, move: Callable[[memoryview], int], rest: memoryview) -> None:
        """Send or receive everything."""
        waited = 0.0
        while rest:
            try:
                count = move(rest)
            except TimeoutError:
                waited = self._patience(rank, waited)
                continue
            except OSError:
                count = 0
            if not count:
                self._gone(rank)
            rest = rest[count:]

    def _patience(self, rank: int, waited: float) -> float:
        """Nothing has come for a while: a slow process disturbs nobody."""
        watch.check()
        waited += watch.PERIOD.total_seconds()
        if waited < self._limit:
            return waited
        watch.explain()
        raise CollectiveError(
            f"rank {self._rank} has waited {self._limit:.0f} s for rank {rank}, the timeout of the process group. If "
            "that may take longer: Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(...))])."
        )

    def _gone(self, rank: int) -> None:
        watch.explain()
        raise CollectiveError(
            f"the connection to rank {rank} is closed: that process has ended, or has left an exchange in its middle, "
            f"while rank {self._rank} waits for it here. Its own output says why."
        )


class _Known:
    """What was found out for a process group."""

    group: object = None
    links: Links | None = None


def open_for_all(rank: int, exchange: Exchange) -> Links | None:
    """
    Find out, once a group, whether all processes can reach one another. All of them call it together.

    Args:
        rank: this process.
        exchange: gives everybody the numbers of all ranks.
    """
    if _Known.group is not dist.group.WORLD:
        close()
        _Known.group, _Known.links = dist.group.WORLD, _open(rank, exchange)
    return _Known.links


def close() -> None:
    """Leave no line open; also in a process that was forked, whose parent must be seen to end."""
    if _Known.links is not None:
        _Known.links.close()
    _Known.group = _Known.links = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=close)


def _open(rank: int, exchange: Exchange) -> Links | None:
    group = dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu"))
    if not isinstance(backend, getattr(dist, "ProcessGroupGloo", ())):
        return None  # chosen by the script, or one that looks at every call (TORCH_DISTRIBUTED_DEBUG=DETAIL)
    numbers = random.SystemRandom()
    name, secret = numbers.getrandbits(62), numbers.getrandbits(62)
    listener = _listen(name)
    told = exchange([name, secret])
    found = {lower: _connect(told[lower], rank) for lower in range(rank) if listener is not None}
    peers = {lower: peer for lower, peer in found.items() if peer is not None}
    complete = listener is not None and len(peers) == rank
    agreed = all(row[0] for row in exchange([int(complete)]))
    if listener is not None:
        with listener:
            while agreed and len(peers) < len(told) - 1:  # they have all connected before they have agreed
                peer, _ = listener.accept()
                if (other := _greeted(peer, secret)) is None:
                    peer.close()
                else:
                    peers[other] = peer
    if agreed:
        return Links(dict(sorted(peers.items())), rank, backend.options._timeout.total_seconds())
    for peer in peers.values():
        peer.close()
    return None


def _address(name: int) -> str:
    """Names that begin with a zero belong to no file, and go with the process."""
    return f"\0torchlift-{name}"


def _listen(name: int) -> socket.socket | None:
    if not sys.platform.startswith("linux"):  # nowhere else are there names without files
        return None
    listener = _socket()
    if listener is None:
        return None
    try:
        listener.bind(_address(name))
        listener.listen(64)
    except OSError:
        listener.close()
        return None
    return listener


def _socket() -> socket.socket | None:
    """None where this process may have no more open files, or where sockets take in too little."""
    try:
        made = socket.socket(socket.AF_UNIX)
    except OSError:
        return None
    if made.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < _IN_FLIGHT:
        made.close()
        return None
    return made


def _connect(told: list[int], rank: int) -> socket.socket | None:
    """A line to a process; None when that is on another machine, or in another container."""
    name, secret = told
    peer = _socket()
    if peer is None:
        return None
    try:
        peer.connect(_address(name))
        peer.sendall(_HELLO.pack(rank, secret))
    except OSError:
        peer.close()
        return None
    return peer


def _greeted(peer: socket.socket, secret: int) -> int | None:
    """Who is at the other end; None for somebody else, for all users of a machine can see its names."""
    peer.settimeout(_STRANGER_SECONDS)
    try:
        hello = peer.recv(_HELLO.size, socket.MSG_WAITALL)
    except OSError:
        return None
    if len(hello) != _HELLO.size:
        return None
    rank, word = _HELLO.unpack(hello)
    return rank if word == secret else None
