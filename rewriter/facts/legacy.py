"""Tensors created or cast by legacy types: ``torch.cuda.FloatTensor(...)``, ``x.type(torch.cuda.LongTensor)``."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import libcst as cst


class Legacy(Enum):
    """What a legacy tensor type is used for."""

    DATA = "data"
    """``Tensor(array)``: a tensor with these values."""
    SIZES = "sizes"
    """``Tensor(n, 1)``: an uninitialised tensor of this size."""
    CAST = "cast"
    """``x.type(Tensor)``: another dtype, and a move to the type's device."""
    UNSURE = "unsure"
    """``Tensor(x)`` where ``x`` may be a number or values: the two are different constructors."""


class LegacyTensor(NamedTuple):
    """One use of a legacy tensor type that is bound to a device."""

    node: cst.Call
    use: Legacy
    dtype: str
    """``float32``, ``int64``, ..."""
    torch: str
    """The name under which the module knows torch."""
    because: str
    placed: bool = False
    """For ``CAST``: the tensor is already on the accelerator's device, so only its dtype changes."""
    module: bool = False
    """For ``CAST``: a module is cast, not a tensor."""
