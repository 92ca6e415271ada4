"""Mixed precision: what the forward pass computes in, and the scaler that fp16 needs."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import DeviceError
from ..types import PrecisionType, Tree
from .kinds import kind_of
from .placement import map_tree

log = logging.getLogger(__name__)
_DTYPES = {
    PrecisionType.FP16: torch.float16,
    PrecisionType.BF16: torch.bfloat16,
    PrecisionType.FP8: torch.bfloat16,  # layers that are converted multiply in it, all else is bf16
    PrecisionType.INT8: torch.bfloat16,
}
_WORDS = {torch.float16: "fp16", torch.bfloat16: "bf16"}
_LOW = frozenset(_DTYPES.values())


@dataclass(frozen=True)
class Precision:
    """
    A precision on a kind of device.

    Raises:
        DeviceError: it cannot compute in it.
    """

    word: PrecisionType
    device_type: str
    enabled: bool = True
    """False: full precision after all."""
    cache_enabled: bool | None = None
    """For autocast: keep the copies of weights in low precision."""

    def __post_init__(self) -> None:
        kind = kind_of(self.device_type)
        if self.mixed and self.dtype not in kind.autocasts():
            has = ", ".join(_WORDS[one] for one in kind.autocasts() if one in _WORDS)
            instead = f"use one of: no, {has}" if has else 'use mixed_precision="no"'
            raise DeviceError(
                f'mixed_precision="{self.word}" needs autocast in {self.dtype}, which {self.device_type} does not '
                f"have: {instead}, or stay on the CPU with cpu=True."
            )

    @property
    def mixed(self) -> bool:
        """The forward pass runs under autocast."""
        return self.enabled and self.word in _DTYPES

    @property
    def dtype(self) -> torch.dtype | None:
        """What forward passes compute in; None in full precision."""
        return _DTYPES[self.word] if self.mixed else None

    def autocast(self) -> AbstractContextManager[Any]:
        """The context for a forward pass; does nothing in full precision. Not enabled, it ends one around it."""
        if self.word not in _DTYPES:
            return nullcontext()
        return torch.autocast(self.device_type, _DTYPES[self.word], self.enabled, self.cache_enabled)

    def scaler(self, **settings: Any) -> torch.amp.GradScaler | None:
        """A loss scaler where gradients would underflow without one."""
        return torch.amp.GradScaler(self.device_type, **settings) if self.word is PrecisionType.FP16 else None


def let_round(device: torch.device, on: bool) -> None:
    """Whether products of matrices in fp32 may be rounded to TF32, for the whole process."""
    kind = kind_of(device)
    if kind.tensor_float:
        kind.let_round(on)
    elif on:
        log.warning("TF32 is asked for, and %s has none: products in fp32 stay as they are.", device.type)


def to_fp32(tree: Tree) -> Tree:
    """The tree with its fp16 and bf16 tensors in fp32."""
    return map_tree(lambda leaf: leaf.float() if isinstance(leaf, torch.Tensor) and leaf.dtype in _LOW else leaf, tree)
