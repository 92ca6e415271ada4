"""Whole tensors out of sharded ones, and sharded ones out of whole ones: state dicts as the plain script knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from .. import torch_spmd
from ..collectives.world import World
from ..device.placement import map_tree
from ..torch_sharding import as_sharded, is_sharded, shards_weights, whole_of


def holds_shards(tree: Any) -> bool:
    """Some tensor of a tree is sharded."""
    if not shards_weights():
        return False
    found = False

    def look(leaf: Any) -> Any:
        nonlocal found
        found = found or is_sharded(leaf)
        return leaf

    map_tree(look, tree)
    return found


def whole_everywhere(tree: Any) -> Any:
    """A tree with whole tensors in the place of sharded ones, on each process. All processes call it."""
    return map_tree(lambda leaf: whole_of(leaf) if is_sharded(leaf) else leaf, tree) if holds_shards(tree) else tree


def gathered(world: World, tree: Any, what: str) -> Any:
    """
    A tree with whole tensors on the CPU of rank 0 in the place of sharded ones; on other ranks their places are empty.

    They are gathered one after another: no rank but 0 holds more than one of them. All processes call it.

    Args:
        world: the processes.
        tree: with the same sharded tensors everywhere.
        what: is done with it, for messages.
    """
    if not holds_shards(tree):
        return tree
    whole = _gatherer(world, what)
    return map_tree(lambda leaf: whole(leaf) if is_sharded(leaf) else leaf, tree)


def whole_tensor(world: World, tensor: Any) -> torch.Tensor | None:
    """The values of a tensor on the CPU of rank 0; None elsewhere. All processes call it for a sharded one."""
    full = tensor.detach().full_tensor() if is_sharded(tensor) else tensor.detach()
    return full.cpu() if world.rank == 0 else None


def meet(world: World, what: str) -> None:
    """All processes are about to gather sharded tensors; an error where some do something else."""
    world.note(what)
    world.gather_numbers([])


def _gatherer(world: World, what: str) -> Callable[[Any], torch.Tensor | None]:
    meet(world, what)
    known: dict[int, tuple[Any, torch.Tensor | None]] = {}

    def whole(tensor: Any) -> torch.Tensor | None:
        if id(tensor) not in known:  # tied weights are one tensor, and stay one
            known[id(tensor)] = tensor, whole_tensor(world, tensor)
        return known[id(tensor)][1]

    return whole


def full_state(world: World, model: nn.Module, what: str) -> dict[str, Any]:
    """
    The state dict of a model, key for key that of the plain one; of a sharded model, on rank 0 alone.

    Args:
        world: the processes; all of them call it.
        model: or a part of one.
        what: is done with it, for messages.

    Returns:
        The state dict; of a sharded model, on the CPU of rank 0, and empty on the others; by torch_xla, on the CPU.
    """
    if any(map(torch_spmd.is_laid_out, model.parameters())):
        laid_out: dict[str, Any] = model.state_dict(keep_vars=True)
        copied = torch_spmd.ToCpu()
        for name, value in laid_out.items():
            laid_out[name] = copied(value)
        return laid_out
    if not any(map(is_sharded, model.parameters())):
        plain: dict[str, Any] = model.state_dict()
        return plain
    whole = _gatherer(world, what)
    state = model.state_dict(keep_vars=True)
    for name, value in state.items():
        if is_sharded(value):
            state[name] = whole(value)
        elif isinstance(value, torch.Tensor) and world.rank == 0:
            state[name] = value.detach().clone().cpu()  # as the others: a copy
    return state if world.rank == 0 else {}


def accept_whole_weights(model: nn.Module) -> None:
    """Let `load_state_dict`, of the model or of a part of it, take whole weights. Nothing is exchanged."""
    for module in model.modules():
        if any(map(is_sharded, module.parameters(recurse=False))):
            module.register_load_state_dict_pre_hook(_take_shards)  # type: ignore[no-untyped-call]


def _take_shards(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
        value = state.get(prefix + name)
        if isinstance(value, torch.Tensor) and is_sharded(parameter) and value.shape == parameter.shape:
            state[prefix + name] = as_sharded(value, parameter)


def from_rank_0(world: World, model: nn.Module, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    What is to be loaded into a sharded model. Where only rank 0 has weights (`get_state_dict` gives them there), the
    others get their parts of them. All processes call it.
    """
    world.note("load_state_dict")
    if all(length for (length,) in world.gather_numbers([len(state)])) or not world.gather_numbers([len(state)])[0][0]:
        return state
    from torch.distributed import broadcast

    own = model.state_dict()
    done: dict[str, Any] = {}
    for name, value in own.items():
        if not isinstance(value, torch.Tensor):
            continue
        if world.rank == 0:
            whole = state[name].detach().to(world.device, value.dtype).contiguous()
        else:
            whole = torch.empty(value.shape, dtype=value.dtype, device=world.device)
        broadcast(whole, 0)
        done[name] = as_sharded(whole, value) if is_sharded(value) else whole
    return done
