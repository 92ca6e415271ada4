"""Figures as trackers take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..device.placement import map_tree


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors as numbers or lists of numbers; everything else as it is."""
    return {name: map_tree(_number, value) for name, value in values.items()}


def _number(value: Any) -> Any:
    return value.detach().tolist() if isinstance(value, torch.Tensor) else value


def is_figure(value: object) -> bool:
    """A number, of python or of numpy."""
    return isinstance(value, (int, float)) or (hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0)
