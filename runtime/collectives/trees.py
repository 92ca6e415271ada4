"""Trees of tensors as lists of tensors, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..device.placement import map_tree
from ..torch_sharding import is_sharded, whole_of
from ..types import Tree


def tensors_of(tree: Tree, operation: str) -> list[torch.Tensor]:
    """
    The tensors of a tree in order; sharded ones are whole.

    Raises:
        TypeError: a leaf is no tensor.
    """
    found: list[torch.Tensor] = []

    def take(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(
                f"accelerator.{operation} takes tensors, and dicts, lists and tuples of tensors; it was given a "
                f"{type(leaf).__name__}. Convert it to a tensor, or use accelerator.gather_for_metrics for other "
                "objects."
            )
        found.append(whole_of(leaf) if is_sharded(leaf) else leaf)
        return leaf

    map_tree(take, tree)
    return found


def rebuild(tree: Tree, tensors: list[torch.Tensor]) -> Tree:
    """The tree with its tensors replaced, in order."""
    source: Iterator[torch.Tensor] = iter(tensors)
    replace: Callable[[Any], Any] = lambda _leaf: next(source)  # noqa: E731
    return map_tree(replace, tree)
