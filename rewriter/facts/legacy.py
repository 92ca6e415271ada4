"""Tensors made or cast by the types of old: ``torch.cuda.FloatTensor(...)``, ``x.type(torch.cuda.LongTensor)``."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import libcst as cst


class Legacy(Enum):
    """What a tensor type of old is used for."""

    DATA = "data"
    """``Tensor(array)``: the values of something."""
    SIZES = "sizes"
    """``Tensor(n, 1)``: room for so many."""
    CAST = "cast"
    """``x.type(Tensor)``: another dtype, and a move to the type's device."""
    UNSURE = "unsure"
    """``Tensor(x)`` where ``x`` may be a number or values: the two are different constructors."""


class LegacyTensor(NamedTuple):
    """One use of a tensor type of old that is bound to a device."""

    node: cst.Call
    use: Legacy
    dtype: str
    """``float32``, ``int64``, ..."""
    torch: str
    """The name under which the module knows torch."""
    because: str
    placed: bool = False
    """For ``CAST``: the tensor is on the accelerator's device already, so that the dtype alone is left to do."""
    module: bool = False
    """For ``CAST``: a module is cast, not a tensor."""
