"""Batches on their way to the device: on a GPU they are copied while it still computes on the ones before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch

from .. import torch_spmd
from ..device.kinds import kind_of
from ..device.placement import map_tree, send_to_device, tensors_in

_SMALL = 64 * 1024
"""A batch of so many bytes is not worth an own way: the driver keeps it, and the script goes on at once."""


class Beside:
    """
    A stream of a device for copies only. There is one a device: memory that was copied to is used again.

    A copy on the stream that computes would wait for all that was asked of it before, and a blocking one would make the
    script wait as well. Here it waits for nothing, and what computes waits for the copy.
    """

    def __init__(self, device: torch.device, copies: torch.Stream) -> None:
        self._device = device
        self._kind = kind_of(device)
        self._copies = copies

    def send(self, batch: Any, non_blocking: bool) -> Callable[[], Any]:
        """Begin to copy. What is returned gives the batch, for what is asked of the current stream from then on."""
        with self._kind.on(self._copies):
            moved = send_to_device(batch, self._device, non_blocking)
        copied = self._copies.record_event()

        def arrived() -> Any:
            current = self._kind.current_stream(self._device)
            current.wait_event(copied)
            for tensor in tensors_in(moved):
                tensor.record_stream(current)  # its memory is not given away before the current stream has used it
            return moved

        return arrived


@lru_cache
def beside(device: torch.device) -> Beside | None:
    """Where batches are copied beside the computing; None on devices that have no such thing."""
    copies = kind_of(device).stream(device)
    return None if copies is None else Beside(device, copies)


def sent(batch: Any, device: torch.device, non_blocking: bool) -> Callable[[], Any]:
    """
    A batch on its way to the device; what is returned gives it there.

    The copy has begun where a stream for copies lets it disturb nothing. Elsewhere, and for a batch that is not known
    well enough, it is made when it is asked for.
    """
    if kind_of(device).drives_all:
        return lambda: _laid_out(batch, device)
    copies = beside(device)
    if copies is None or _bytes_of(batch) <= _SMALL:
        return lambda: send_to_device(batch, device, non_blocking)
    return copies.send(batch, non_blocking)


def _laid_out(batch: Any, device: torch.device) -> Any:
    """A batch on all devices of torch_xla, each with its run of rows. Tensors are sent together."""
    waiting = [one for one in tensors_in(batch) if type(one) is torch.Tensor and one.device.type == "cpu"]
    sent = dict(zip(map(id, waiting), torch_spmd.send_rows(waiting), strict=True))
    return send_to_device(map_tree(lambda leaf: sent.get(id(leaf), leaf), batch), device)


def _bytes_of(batch: Any) -> int:
    """
    How much is to be copied; 0 for a batch that is not known well enough.

    Every tensor of it must be seen, and on the CPU: one on the device may still have to be computed.
    """
    if isinstance(batch, Mapping) and hasattr(batch, "to"):
        return 0
    found: list[int | None] = []

    def look(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            found.append(leaf.nbytes if leaf.device.type == "cpu" and leaf.layout is torch.strided else None)
        elif hasattr(leaf, "to") and not isinstance(leaf, type):
            found.append(None)
        return leaf

    map_tree(look, batch)
    return 0 if None in found else sum(one for one in found if one is not None)
