"""
Models of which only rank 0 has the weights: the others build theirs on the meta device, which takes no memory.

Every process shards what it has, and rank 0 then sends one tensor after another, of which each keeps its part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.distributed import broadcast

from ..collectives.world import World
from ..errors import NotAvailableYet
from ..torch_sharding import as_sharded, is_sharded


def all_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers, each once."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def lacks_data(world: World, model: nn.Module) -> bool:
    """
    Some process has a model without data. All of them ask.

    Raises:
        NotAvailableYet: rank 0 is one of them.
    """
    world.note("prepare a model without data")
    lacking = [row[0] for row in world.gather_numbers([sum(one.is_meta for _, one in all_tensors(model))])]
    if lacking[0]:
        raise NotAvailableYet(
            f"sharding a {type(model).__name__} that has no data on process 0 (it is on the meta device)",
            "Build it on the CPU on process 0; other processes may build theirs on the meta device.",
        )
    return any(lacking)


def give_memory(model: nn.Module, whole: dict[int, nn.Parameter], device: torch.device) -> None:
    """
    Parameters that are kept whole, and buffers, get memory where they have none.

    Args:
        model: is changed in place.
        whole: those parameters, by their identities; new ones take the place of those without data.
        device: where they are needed.
    """
    new: dict[int, torch.Tensor] = {}
    for module in model.modules():
        tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, one in tensors:
            if one.is_meta and (id(one) in whole or not isinstance(one, nn.Parameter)):
                if id(one) not in new:
                    empty = torch.empty_like(one, device=device)
                    trained = isinstance(one, nn.Parameter)
                    new[id(one)] = nn.Parameter(empty, requires_grad=one.requires_grad) if trained else empty
                setattr(module, name, new[id(one)])
    for key in [key for key in whole if key in new]:
        parameter = new[key]
        assert isinstance(parameter, nn.Parameter)
        del whole[key]
        whole[id(parameter)] = parameter


def fill_from_rank_0(world: World, model: nn.Module, source: Mapping[str, torch.Tensor]) -> None:
    """
    Every process gets its part of what rank 0 has.

    Args:
        world: the processes; all of them call it.
        model: sharded, before its first pass.
        source: on rank 0, its weights and buffers.
    """
    if any(one.is_meta for one in model.parameters()):
        offloaded = {one.device for one in model.parameters() if not one.is_meta}
        model.to_empty(device=offloaded.pop() if len(offloaded) == 1 else world.device)
    world.note("send the weights of a model")
    world.gather_numbers([])
    for name, one in all_tensors(model):
        if world.rank == 0:
            value = source[name].to(world.device).contiguous()
        else:
            value = torch.empty(one.shape, dtype=one.dtype, device=world.device)
        broadcast(value, 0)
        if world.rank:
            with torch.no_grad():
                one.detach().copy_(as_sharded(value, one) if is_sharded(one) else value)
