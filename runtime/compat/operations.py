"""Operations over all processes for scripts without an accelerator at hand."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch

from ..collectives import gather as gathering
from ..collectives.objects import broadcast_objects, gather_objects
from ..collectives.reduce import reduce as reduce_tree
from ..collectives.world import World
from ..device.kinds import kind_of
from ..errors import UnknownWordError
from ..process.state import PartialState
from ..types import RNGType, Tree


class CannotPadNestedTensorWarning(UserWarning):
    """A nested tensor was left as it is, for it cannot be padded."""


def current_world() -> World:
    """The processes of this job."""
    state = PartialState()
    return World(state.process_index, state.num_processes, state.device)


def gather(tensor: Tree) -> Tree:
    """Join tensors of all processes along their first dimension."""
    return gathering.gather(current_world(), tensor)


def gather_object(object: list[Any]) -> list[Any]:
    """
    Join lists of all processes.

    Raises:
        ValueError: not a list.
    """
    return gather_objects(current_world(), object)


def broadcast(tensor: Tree, from_process: int = 0) -> Tree:
    """The tensors of one process, on all of them."""
    return gathering.broadcast(current_world(), tensor, from_process)


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Replace the contents of a list by those of one process, in place."""
    return broadcast_objects(current_world(), object_list, from_process)


def reduce(tensor: Tree, reduction: str = "mean", scale: float = 1.0) -> Tree:
    """Join tensors of equal shapes element by element; "mean" unless asked otherwise, as in Accelerate."""
    return reduce_tree(current_world(), tensor, reduction, scale)


def pad_across_processes(tensor: Tree, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Tree:
    """Fill tensors up to the longest of all processes in dimension `dim`; nested tensors stay, with a warning."""
    if isinstance(tensor, torch.Tensor) and tensor.is_nested:
        warnings.warn("nested tensors cannot be padded", CannotPadNestedTensorWarning, stacklevel=2)
        return tensor
    return gathering.pad_across_processes(current_world(), tensor, dim, pad_index, pad_first)


def copy_tensor_to_devices(tensor: torch.Tensor | None = None) -> torch.Tensor:
    """The tensor of process 0, on all processes; the others may give None."""
    world = current_world()
    about = [None if tensor is None else (tuple(tensor.shape), tensor.dtype)]
    broadcast_objects(world, about)
    if about[0] is None:
        raise ValueError("copy_tensor_to_devices: process 0 passed no tensor.")
    shape, dtype = about[0]
    if tensor is None or world.rank:
        tensor = torch.empty(shape, dtype=dtype, device=world.device)
    return gathering.broadcast_tensors(world, [tensor.to(world.device)])[0] if not world.alone else tensor


def synchronize_rng_state(rng_type: str | None = None, generator: torch.Generator | None = None) -> None:
    """
    Continue with the random numbers of process 0.

    Args:
        rng_type: "torch", the type of an accelerator, or "generator" for the one that is given.
        generator: a generator of torch.

    Raises:
        UnknownWordError: no such kind.
        ValueError: "generator" without one.
    """
    word = str(rng_type or RNGType.GENERATOR)
    if word not in RNGType.list():
        raise UnknownWordError("rng_type", word, RNGType.list())
    if word == RNGType.GENERATOR and generator is None:
        raise ValueError('rng_type "generator" needs a generator: synchronize_rng_state("generator", generator).')
    world = current_world()
    if world.alone:
        return
    (state,) = broadcast_objects(world, [_state(word, generator, world.device)])
    if world.rank:
        _set_state(word, state, generator, world.device)


def synchronize_rng_states(rng_types: Iterable[str], generator: torch.Generator | None = None) -> None:
    """`synchronize_rng_state`, for several kinds."""
    for rng_type in rng_types:
        synchronize_rng_state(rng_type, generator)


def _state(word: str, generator: torch.Generator | None, device: torch.device) -> Any:
    if word == RNGType.TORCH:
        return torch.get_rng_state()
    if word == RNGType.GENERATOR and generator is not None:
        return generator.get_state()
    return kind_of(device).random_state(device) if device.type == word else None


def _set_state(word: str, state: Any, generator: torch.Generator | None, device: torch.device) -> None:
    if word == RNGType.TORCH:
        torch.set_rng_state(state)
    elif word == RNGType.GENERATOR and generator is not None:
        generator.set_state(state)
    elif state is not None:
        kind_of(device).set_random_state(state, device)
