"""Clipping: of whole gradients only, free of the scale, and only of the optimizers concerned."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, Protocol

import torch
from torch.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_

from ..strategies.former import current
from ..torch_sharding import is_sharded
from .optimizer import Gate


class Collecting(Protocol):
    """What may have gradients of a parameter that are in no `.grad` yet."""

    def collected(self, parameters: Iterable[torch.Tensor] | None = None) -> Iterable[torch.Tensor]:
        """These gradients."""


def owners(gates: Iterable[Gate], parameters: list[torch.Tensor]) -> list[Gate]:
    """The gates of optimizers that own one of the parameters."""
    wanted = {id(parameter) for parameter in parameters}
    return [
        gate
        for gate in gates
        if any(id(parameter) in wanted for group in gate.optimizer.param_groups for parameter in group["params"])
    ]


def as_list(parameters: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """One parameter or many, as a list; sharded ones in the place of those of before."""
    given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    return [current(one) for one in given]


def clip_norm(
    gates: Iterable[Gate],
    engines: Iterable[Collecting],
    parameters: list[torch.Tensor],
    max_norm: float,
    norm_type: float,
    sync: bool,
) -> torch.Tensor:
    """
    Clip gradients to a total norm.

    Args:
        gates: of all prepared optimizers.
        engines: of all prepared models.
        parameters: whose gradients.
        max_norm: the largest total norm.
        norm_type: which norm.
        sync: False inside a window: gradients are partial and differ per process, so they are measured, not clipped.

    Returns:
        The total norm before clipping.
    """
    if not sync:
        found = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return total_norm([*found, *(one for engine in engines for one in engine.collected(parameters))], norm_type)
    for gate in owners(gates, parameters):
        gate.unscale()
    if not any(map(is_sharded, parameters)):
        return clip_grad_norm_(parameters, max_norm, norm_type)
    norm = total_norm([one.grad for one in parameters if one.grad is not None], norm_type)
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)  # as torch does it
    for one in parameters:
        if one.grad is not None:
            one.grad.detach().mul_(factor.to(one.grad.device))
    return norm


def total_norm(gradients: list[torch.Tensor], norm_type: float) -> torch.Tensor:
    """The norm of all gradients together; of sharded ones, that of the whole ones. All processes ask then."""
    plain = [one for one in gradients if not is_sharded(one)]
    sharded = [one for one in gradients if is_sharded(one)]
    if not sharded:
        return torch.nn.utils.get_total_norm(plain, norm_type)
    whole = _largest(sharded) if norm_type == inf else _whole_norm(sharded, norm_type)
    if not plain:
        return whole
    other = torch.nn.utils.get_total_norm(plain, norm_type).to(whole.device)
    both: torch.Tensor = torch.linalg.vector_norm(torch.stack([whole, other.to(whole.dtype)]), norm_type)
    return both


def _whole_norm(gradients: list[Any], norm_type: float) -> torch.Tensor:
    together: Any = torch.nn.utils.get_total_norm(gradients, norm_type)
    whole: torch.Tensor = together.full_tensor()
    return whole


def _largest(gradients: list[Any]) -> torch.Tensor:
    """Also where a process has no row of a weight: torch has no largest number of nothing."""
    from torch.distributed.tensor import DTensor, Partial

    first = gradients[0]
    parts = [one.to_local().detach() for one in gradients]
    found = [part.abs().max() for part in parts if part.numel()]
    local = torch.stack(found).max() if found else parts[0].new_zeros(())
    whole: torch.Tensor = DTensor.from_local(
        local, first.device_mesh, [Partial("max")] * first.device_mesh.ndim
    ).full_tensor()
    return whole


def clip_values(gates: Iterable[Gate], parameters: list[torch.Tensor], value: float, sync: bool) -> None:
    """Clip every element of the gradients to [-value, value]; inside a window nothing is done."""
    if not sync:
        return
    for gate in owners(gates, parameters):
        gate.unscale()
    sharded = [one for one in parameters if is_sharded(one)]
    if sharded:
        clip_grad_value_(sharded, value)
    if len(sharded) < len(parameters) or not parameters:
        clip_grad_value_([one for one in parameters if not is_sharded(one)], value)
