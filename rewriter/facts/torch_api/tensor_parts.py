"""The attributes of a tensor: those with its values, and those that say how it is made."""

from __future__ import annotations

from .kinds import tensors
from .loading import row, transfer

_VALUES = frozenset("data real imag T mT H mH".split())
_DESCRIPTION = frozenset("ndim dtype device requires_grad is_cuda layout".split())
_OTHERS = frozenset("shape grad".split())


def is_part(name: str) -> bool:
    """Whether a tensor has an attribute of this name."""
    return name in _VALUES | _DESCRIPTION | _OTHERS


def describes(name: str) -> bool:
    """Whether an attribute says nothing of a tensor's values, and nothing of how many there are."""
    return name in _DESCRIPTION


def asks_how(name: str) -> bool:
    """Whether an attribute or a method says how a tensor is made, and nothing of its values: ``shape``, ``numel``."""
    return name == "shape" or describes(name) or transfer(f"torch.Tensor.{name}", tensors.Structural) is not None


def shows_tensor(method: str) -> bool:
    """Whether a method that is asked of something shows that it is a tensor, and no text."""
    return row(f"torch.Tensor.{method}") is not None and not hasattr(str, method)


def counts(method: str) -> bool:
    """Whether a method of a tensor can give the number of its rows."""
    found = transfer(f"torch.Tensor.{method}", tensors.Structural)
    return found is not None and found.rows
