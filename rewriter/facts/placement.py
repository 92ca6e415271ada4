"""What becomes of moves to a device, of batches that nothing moves, and of what was asked of a wrapper or a device."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import libcst as cst


class Move(Enum):
    """What happens to a move."""

    STATEMENT = "statement"
    """The whole statement is removed: the prepared loader or ``prepare`` has moved the value already."""
    LINK = "link"
    """Only the ``.to(device)`` is removed, the rest of the expression stays."""
    RETARGET = "retarget"
    """It stays, with the accelerator's device."""
    HOST = "host"
    """No move yet, but one is needed: numpy reads only CPU memory, and the batches are on the device."""
    PLACE = "place"
    """No move yet, but one is needed: the tensor is created on the CPU, and combined with one on the device."""
    UNWRAP = "unwrap"
    """A call around a model is removed, the model stays."""
    CALL = "call"
    """A function calls the model for the script: the script calls it by itself."""


class Placement(NamedTuple):
    """A ``.to(device)`` or ``.cuda()`` and what happens to it; for ``HOST`` the value to move to the CPU, for ``PLACE``
    to the device."""

    node: cst.BaseExpression
    move: Move
    because: str
    statement: cst.CSTNode | None = None
    """For ``STATEMENT``: what is removed, a line or an ``if`` that held nothing but moves."""
    keeps: tuple[cst.Arg, ...] = ()
    """Arguments that do other work (a dtype, a memory format) and stay."""
    copied: tuple[cst.CSTNode, str] | None = None
    """For ``LINK``, if the move was all that a comprehension did: the comprehension, and what is left of it."""
    target: cst.BaseExpression | None = None
    """For ``RETARGET``: the device expression to replace; None if the call names no device (``.cuda()``)."""
    spare: bool = False
    """It needs no accelerator: ``"cuda"`` without a number does as well, or the device of what is ``beside`` it."""
    beside: cst.BaseExpression | None = None
    """For ``PLACE``: the tensor to whose device it goes."""


class Arrival(NamedTuple):
    """A loop whose batches nothing moves to the device: they are moved as they come."""

    loop: cst.For
    names: tuple[str, ...]
    """The variables of the loop that hold what a loader yields."""
    after: cst.CSTNode | None = None
    """The statement that sets them, ``x, y = next(batches)``; the loop itself without one."""


class WrapperRead(NamedTuple):
    """A call that asks a model for its parts or their names, and was answered by the wrapper that is removed."""

    node: cst.Call
    method: str
    certain: bool
    """Whether it was the wrapper on every path."""
    use: cst.CSTNode | None = None
    """Of names: what depends on how they begin."""
    at_once: bool = False
    """Of children: they are iterated where they are asked for."""


class DeviceRead(NamedTuple):
    """A read of a name that held the device and no longer exists."""

    node: cst.BaseExpression
    as_word: bool
    """Whether the script used it as a string (``device == "cuda"``): give it ``accelerator.device.type``."""
