"""Small operations on trees that scripts ask for by name; nothing here needs another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch

from ..device.placement import map_tree
from ..device.placement import send_to_device as move
from ..device.precision import to_fp32
from ..types import Tree


@dataclass(frozen=True)
class TensorInformation:
    """What a tensor looks like, without its values."""

    shape: torch.Size
    dtype: torch.dtype


def is_torch_tensor(value: object) -> bool:
    """It is a tensor."""
    return isinstance(value, torch.Tensor)


def is_tensor_information(value: object) -> bool:
    """It is what `get_data_structure` puts in the place of a tensor."""
    return isinstance(value, TensorInformation)


def is_namedtuple(value: object) -> bool:
    """It is a named tuple, of `typing` or of `collections`."""
    return isinstance(value, tuple) and hasattr(value, "_asdict") and hasattr(value, "_fields")


def honor_type(obj: Any, generator: Any) -> Any:
    """A list, tuple or named tuple of the type of `obj`, from what a generator gives."""
    return type(obj)(*generator) if is_namedtuple(obj) else type(obj)(generator)


def recursively_apply(
    func: Callable[..., Any],
    data: Tree,
    *args: Any,
    test_type: Callable[[Any], bool] = is_torch_tensor,
    error_on_other_type: bool = False,
    **kwargs: Any,
) -> Tree:
    """
    Apply a function to the leaves of a tree.

    Args:
        func: takes a leaf, then `args` and `kwargs`.
        data: the tree.
        test_type: which leaves.
        error_on_other_type: other leaves are an error; else they stay as they are.

    Raises:
        TypeError: another leaf.
    """

    def one(leaf: Any) -> Any:
        if test_type(leaf):
            return func(leaf, *args, **kwargs)
        if error_on_other_type:
            raise TypeError(
                f"Unsupported types ({type(leaf)}) passed to `{func.__name__}`. Only nested list/tuple/dicts of "
                f"objects that are valid for `{test_type.__name__}` should be passed."
            )
        return leaf

    return map_tree(one, data)


def send_to_device(
    tensor: Tree, device: torch.device | str | int, non_blocking: bool = False, skip_keys: list[str] | str | None = None
) -> Tree:
    """
    Move every tensor of a tree, and everything else that has `.to`.

    Args:
        tensor: the tree.
        device: where to.
        non_blocking: without waiting for the copy.
        skip_keys: entries of dicts that stay where they are.
    """
    place = torch.device(device)
    skipped = [skip_keys] if isinstance(skip_keys, str) else (skip_keys or [])
    if not skipped or not isinstance(tensor, Mapping):
        return move(tensor, place, non_blocking)
    moved = {key: value if key in skipped else move(value, place, non_blocking) for key, value in tensor.items()}
    return type(tensor)(moved)  # type: ignore[call-arg]


def get_data_structure(data: Tree) -> Tree:
    """The tree with a `TensorInformation` in the place of every tensor."""
    return recursively_apply(lambda tensor: TensorInformation(tensor.shape, tensor.dtype), data)


def get_shape(data: Tree) -> Tree:
    """The tree with the list of its sizes in the place of every tensor."""
    return recursively_apply(lambda tensor: list(tensor.shape), data)


def initialize_tensors(data_structure: Tree) -> Tree:
    """Empty tensors in the places of what `get_data_structure` has noted."""
    return recursively_apply(
        lambda found: torch.empty(*found.shape, dtype=found.dtype), data_structure, test_type=is_tensor_information
    )


def find_batch_size(data: Tree) -> int | None:
    """
    The size of the first dimension of the first tensor; None in a tree without one.

    Raises:
        TypeError: the first leaf is no tensor.
    """
    if isinstance(data, (list, tuple, Mapping)):
        values = list(data.values()) if isinstance(data, Mapping) else list(data)
        if not values:
            raise ValueError(f"Cannot find the batch size from empty {type(data)}.")
        return find_batch_size(values[0])
    if not isinstance(data, torch.Tensor):
        raise TypeError(f"Can only find the batch size of tensors but got {type(data)}.")
    return data.shape[0]


def ignorant_find_batch_size(data: Tree) -> int | None:
    """`find_batch_size`, or None where it raises."""
    try:
        return find_batch_size(data)
    except (ValueError, TypeError, IndexError):
        return None


def find_device(data: Tree) -> torch.device | None:
    """The device of the first tensor of a tree; None without one."""
    found: list[torch.device] = []
    recursively_apply(lambda tensor: found.append(tensor.device), data)
    return found[0] if found else None


def listify(data: Tree) -> Tree:
    """The tree with numbers, or lists of them, in the places of tensors."""
    return recursively_apply(
        lambda tensor: (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).detach().cpu().tolist(), data
    )


def slice_tensors(
    data: Tree, tensor_slice: slice, process_index: int | None = None, num_processes: int | None = None
) -> Tree:
    """The tree with every tensor cut to `tensor_slice`; the other two arguments change nothing."""
    return recursively_apply(lambda tensor: tensor[tensor_slice], data)


def concatenate(data: list[Tree], dim: int = 0) -> Tree:
    """
    Join trees of the same kind, tensor by tensor. A single tree comes back as it is.

    Raises:
        TypeError: there are leaves that are no tensors.
    """
    first = data[0]
    if len(data) == 1:
        return first
    if isinstance(first, (tuple, list)):
        return honor_type(first, (concatenate([one[i] for one in data], dim=dim) for i in range(len(first))))
    if isinstance(first, Mapping):
        return type(first)({key: concatenate([one[key] for one in data], dim=dim) for key in first})  # type: ignore[call-arg]
    if not isinstance(first, torch.Tensor):
        raise TypeError(f"Can only concatenate tensors but got {type(first)}")
    return torch.cat(data, dim=dim)


def pad_input_tensors(tensor: Tree, batch_size: int, num_processes: int, dim: int = 0) -> Tree:
    """Fill the first dimension of every tensor with zeros, up to a multiple of `num_processes`."""
    missing = -batch_size % num_processes

    def fill(one: torch.Tensor) -> torch.Tensor:
        return torch.cat([one, one.new_zeros((missing, *one.shape[1:]))]) if missing else one

    return recursively_apply(fill, tensor, error_on_other_type=True)


def convert_to_fp32(tensor: Tree) -> Tree:
    """The tree with tensors of half precision in single precision."""
    return to_fp32(tensor)


def convert_outputs_to_fp32(model_forward: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results are those of `model_forward` in single precision."""

    @wraps(model_forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return convert_to_fp32(model_forward(*args, **kwargs))

    return forward
