"""Walking trees: mapping their leaves, moving them to a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ..errors import DeviceError
from ..types import Tree
from .kinds import kind_of


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """
    Apply `function` to every leaf and rebuild the tree around the answers.

    dict-like, list, tuple and named tuple are walked and keep their types; everything else is a leaf.
    """
    if isinstance(tree, torch.Tensor) or not is_container(tree):
        return function(tree)
    return map_items(lambda item: function(item) if type(item) is torch.Tensor else map_tree(function, item), tree)


def is_container(tree: object) -> bool:
    """dict-like, a list, a tuple or a named tuple: what trees are made of."""
    return isinstance(tree, (Mapping, list, tuple))


def map_items(function: Callable[..., Any], tree: Tree, *others: Any) -> Tree:
    """
    A container of the same type with the answers of `function` to its items, and to those of `others` beside them.

    Args:
        function: takes as many items as there are containers.
        tree: dict-like, a list, a tuple or a named tuple.
        others: containers with the same keys, or of the same length.
    """
    if type(tree) is dict and not others:
        return {key: function(item) for key, item in tree.items()}
    if isinstance(tree, Mapping):
        return _like_mapping(tree, {key: function(tree[key], *(one[key] for one in others)) for key in tree})
    return _like_sequence(tree, [function(*items) for items in zip(tree, *others, strict=True)])


def tensors_in(tree: Tree) -> list[torch.Tensor]:
    """The tensors of a tree, in order."""
    found: list[torch.Tensor] = []
    map_tree(lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None, tree)
    return found


def _like_mapping(like: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(like) is dict:
        return items
    if hasattr(like, "default_factory"):
        return type(like)(like.default_factory, items)  # type: ignore[call-arg]
    return type(like)(items)  # type: ignore[call-arg]


def _like_sequence(like: list[Any] | tuple[Any, ...], items: list[Any]) -> Any:
    if hasattr(like, "_fields"):
        return type(like)(*items)
    return type(like)(items)


def type_on(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """
    The type that a tensor has on a device: some have no float64. A script for such a one casts its batch before it
    moves it, and what a loader yields is moved before.
    """
    return kind_of(device).type_of(dtype)


def move_module(module: nn.Module, device: torch.device) -> None:
    """
    Move a module, whose parameters stay the objects they are: an optimizer that was made before steps them.

    Raises:
        DeviceError: it has no weights yet, or somebody else holds on to what a parameter is made of.
    """
    empty = next((name for name, one in module.named_parameters() if one.is_meta), None)
    if empty is not None and device.type != "meta":
        raise DeviceError(
            f"the weights of the {type(module).__name__} ({empty}, for one) are on the meta device and hold no data: "
            'load them before prepare, for instance with load_checkpoint_in_model(model, path, device_map={"": "cpu"}).'
        )
    if kind_of(device).keeps_parameters:
        module.to(device)
        return
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        module.to(device)
    except RuntimeError as error:
        if error.__cause__ is None:
            raise
        raise DeviceError(
            f"the weights of the {type(module).__name__} cannot become tensors of {device.type} in their places "
            f"({error.__cause__}). Prepare the model before anything computes with it or refers to its weights weakly."
        ) from error
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swaps)


def for_files(tree: Tree) -> Tree:
    """The same tree, with tensors that only a machine with their device could read from a file on the CPU."""
    if all(_fit(one) for one in tensors_in(tree)):
        return tree
    return map_tree(lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) and not _fit(leaf) else leaf, tree)


def _fit(tensor: torch.Tensor) -> bool:
    return kind_of(tensor.device).fit_for_files(tensor)


def send_to_device(tree: Tree, device: torch.device, non_blocking: bool = False) -> Tree:
    """
    Move every tensor of a tree, and every object with a `.to` method, to `device`. Everything else is left alone.

    Tensors of a type that the device does not have become the next one that it has.

    A tree whose container has a `.to` of its own (a tokenizer's batch, for one) is moved by that.
    """

    def move(leaf: Any) -> Any:
        to = getattr(leaf, "to", None)
        if to is None or isinstance(leaf, type):
            return leaf
        if type(leaf) is torch.Tensor and (dtype := type_on(device, leaf.dtype)) is not leaf.dtype:
            return to(device, dtype, non_blocking=non_blocking)
        try:
            return to(device, non_blocking=non_blocking)
        except TypeError:  # an object whose `to` takes a device only
            return to(device)

    if not isinstance(tree, torch.Tensor) and isinstance(tree, Mapping) and hasattr(tree, "to"):
        return move(tree)
    return map_tree(move, tree)
