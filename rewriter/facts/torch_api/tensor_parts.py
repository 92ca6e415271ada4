"""The attributes of a tensor: those with its values, and those that say how it is made."""

from __future__ import annotations

_VALUES = frozenset("data real imag T mT H mH".split())
_DESCRIPTION = frozenset("ndim dtype device requires_grad is_cuda layout".split())
_OTHERS = frozenset("shape grad".split())


def is_part(name: str) -> bool:
    """Whether a tensor has an attribute of this name."""
    return name in _VALUES | _DESCRIPTION | _OTHERS


def describes(name: str) -> bool:
    """Whether an attribute says nothing of a tensor's values, and nothing of how many there are."""
    return name in _DESCRIPTION
