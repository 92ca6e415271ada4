"""
Averaging the gradients of all processes when a backward pass is over.

What travels is one run of numbers: the gradients (zeros for those that a process lacks), and for every parameter
whether there is one. Of a large model only what some process has collected since the last exchange travels, in pieces:
all processes tell one another first what that is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import reduce

import torch
from torch import nn

from ..collectives.world import World
from ..process import watched_calls
from ..torch_internals import as_one, copy_each, like
from ..types import Reduction

_PIECE_BYTES = 25 << 20
"""How much travels at once: so much memory is needed beside the gradients."""
_SPARSE = 1 << 20
"""Stands for a sparse gradient where dense ones are counted: more than there ever are processes."""
_BITS = 32
"""Parameters that one number tells of."""


def average_collected(world: World, parameters: Sequence[nn.Parameter], collected: Collection[int], name: str) -> None:
    """
    The same as `average_gradients`, for a large model: only of parameters that some process has collected for.

    Args:
        world: the processes.
        parameters: the same on all processes.
        collected: the identities of those that have collected gradients here since the last exchange.
        name: of their model, for messages.

    Raises:
        CollectiveMismatch: the processes make different calls.
    """
    watched_calls.note("backward", f"{name}, {len(parameters)} parameters", (name,))
    here = [id(parameter) in collected and parameter.grad is not None for parameter in parameters]
    anywhere = anywhere_of(world.gather_numbers(as_bits(here)), len(here))
    wanted = [one for one, somewhere in zip(parameters, anywhere, strict=True) if somewhere]
    for piece in _pieces(wanted):
        average_gradients(world, piece, name)


def as_bits(here: Sequence[bool]) -> list[int]:
    """Answers as whole numbers, many in each."""
    return [
        sum(1 << bit for bit, has in enumerate(here[start : start + _BITS]) if has)
        for start in range(0, len(here), _BITS)
    ]


def anywhere_of(rows: Sequence[Sequence[int]], count: int) -> list[bool]:
    """Which of `count` answers is yes on some process; one row of numbers a process."""
    joined = [reduce(int.__or__, column) for column in zip(*rows, strict=True)]
    return [bool(joined[i // _BITS] >> i % _BITS & 1) for i in range(count)]


def _pieces(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    piece: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        own = parameter.numel() * parameter.dtype.itemsize
        if piece and (size + own > _PIECE_BYTES or parameter.dtype is not piece[0].dtype):
            yield piece
            piece, size = [], 0
        piece.append(parameter)
        size += own
    if piece:
        yield piece


def average_gradients(world: World, parameters: Sequence[nn.Parameter], name: str) -> None:
    """
    Make gradients the mean of those of all processes, in place; one that a process lacks counts as zero there.

    A parameter without a gradient on any process keeps none. Sparse gradients travel as dense ones. Where no process
    has a dense one they are sparse again afterwards, without rows whose mean is zero.

    Args:
        world: the processes.
        parameters: the same on all processes.
        name: of their model, for messages.

    Raises:
        CollectiveMismatch: the processes make different calls.
    """
    gradients = [parameter.grad for parameter in parameters]
    plain = _plain(world, gradients)
    values = plain or _travelling(world, parameters, gradients)
    if not values:
        return
    numbers = sum([value.numel() for value in values])
    watched_calls.note("backward", f"{name}, {len(values)} parameters, {numbers} numbers", (name,))
    last = values[0].new_ones(len(values))
    if not plain:
        last = torch.tensor([_layout(one) for one in gradients], dtype=values[0].dtype, device=world.device)
    flat = as_one([*values, last])
    flat /= world.size
    world.reduce([flat], Reduction.SUM, [flat.numel()])
    averages = like(flat, values)
    if plain:
        copy_each(plain, averages)
    else:
        _put(parameters, averages, [round(each * world.size) for each in flat[numbers:].tolist()])


def _plain(world: World, gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    """The gradients, where every parameter has one, and all can travel and be written to as they are; else nothing."""
    found = [one for one in gradients if one is not None]
    if len(found) < len(gradients):
        return []
    kinds = {(one.dtype, one.layout, one.device.type, one.requires_grad) for one in found}
    possible = [(dtype, torch.strided, world.device.type, False) for dtype in (torch.float32, torch.float64)]
    return found if len(kinds) == 1 and kinds.pop() in possible else []


def _travelling(
    world: World, parameters: Sequence[nn.Parameter], gradients: Sequence[torch.Tensor | None]
) -> list[torch.Tensor]:
    """What stands for the gradients on the way: dense, real, of one type that every back end adds without loss."""
    pairs = zip(parameters, gradients, strict=True)
    found = [torch.zeros_like(one) if gradient is None else gradient.detach() for one, gradient in pairs]
    values = [_real(one.detach() if one.layout is torch.strided else one.detach().to_dense()) for one in found]
    dtype = reduce(torch.promote_types, {value.dtype for value in values}, torch.float32)
    return [value.to(world.device, dtype) for value in values]


def _layout(gradient: torch.Tensor | None) -> int:
    """What is added up over the processes: how many have a dense gradient, and how many a sparse one."""
    return 0 if gradient is None else 1 if gradient.layout is torch.strided else _SPARSE


def _put(parameters: Sequence[nn.Parameter], averages: Sequence[torch.Tensor], having: Sequence[int]) -> None:
    """Write means to where the gradients are, unless no process has one."""
    for parameter, average, layouts in zip(parameters, averages, having, strict=False):
        if layouts:
            before = parameter.grad
            if before is None or before.layout is not torch.strided:
                parameter.grad = torch.zeros_like(parameter)
            assert parameter.grad is not None
            _real(parameter.grad.detach()).copy_(average)
            if layouts % _SPARSE == 0:
                parameter.grad = parameter.grad.to_sparse(1)  # rows, as embeddings make them


def _real(values: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs."""
    return torch.view_as_real(values) if values.is_complex() else values
