"""Figures of tensors: norms in float64, hashes of bytes, and sketches that show by how much two tensors differ."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

SKETCH = 8
"""Numbers in a sketch."""
_PERIOD = 65_536
_SIGNS: dict[torch.device, torch.Tensor] = {}
_BASE = (torch.rand(_PERIOD, generator=torch.Generator().manual_seed(1)) > 0.5).double() * 2 - 1


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The whole value of a tensor, on its device, without a gradient; also of a sharded one."""
    tensor = tensor.detach()
    whole = getattr(tensor, "full_tensor", None)
    if whole is not None:
        tensor = whole()
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    return tensor


def digest(tensor: torch.Tensor) -> bytes:
    """A hash of the bytes of a tensor."""
    raw = local(tensor).cpu().contiguous()
    if raw.numel() == 0:
        return b"empty"
    return hashlib.blake2b(raw.reshape(-1).view(torch.uint8).numpy().data, digest_size=8).digest()


def together(digests: list[bytes]) -> str:
    """One hash of many."""
    return hashlib.blake2b(b"".join(digests), digest_size=8).hexdigest()


def sketch(tensor: torch.Tensor) -> torch.Tensor:
    """
    Eight random sums of a tensor, in float64.

    The difference of two sketches has, on average, the norm of the difference of the tensors.
    """
    flat = local(tensor).reshape(-1).double()
    signs = _signs(flat.device)
    count = flat.numel()
    padded = torch.zeros(-(-count // _PERIOD) * _PERIOD if count > _PERIOD else count, dtype=torch.float64).to(flat)
    padded[:count] = flat
    signed = (padded.view(-1, _PERIOD) * signs if count > _PERIOD else padded * signs[:count]).reshape(-1)
    rest = -signed.numel() % SKETCH
    if rest:
        signed = torch.nn.functional.pad(signed, (0, rest))
    return signed.view(-1, SKETCH).sum(0).cpu()


def _signs(device: torch.device) -> torch.Tensor:
    if device not in _SIGNS:
        _SIGNS[device] = _BASE.to(device)
    return _SIGNS[device]


def norm(tensors: list[torch.Tensor]) -> float:
    """The norm of all tensors together, in float64."""
    total = 0.0
    for tensor in tensors:
        total += float(local(tensor).double().square().sum())
    return float(total**0.5)


def number(value: Any) -> float:
    """A tensor's single value, or the sum of its values."""
    return float(value.detach().double().sum())
