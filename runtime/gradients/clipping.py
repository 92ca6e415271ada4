"""Clipping: of whole gradients only, free of the scale, and only of the optimizers concerned."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_

from .optimizer import Gate


def owners(gates: Iterable[Gate], parameters: list[torch.Tensor]) -> list[Gate]:
    """The gates of optimizers that own one of the parameters."""
    wanted = {id(parameter) for parameter in parameters}
    return [
        gate
        for gate in gates
        if any(id(parameter) in wanted for group in gate.optimizer.param_groups for parameter in group["params"])
    ]


def as_list(parameters: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """One parameter or many, as a list."""
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)


def clip_norm(
    gates: Iterable[Gate], parameters: list[torch.Tensor], max_norm: float, norm_type: float, sync: bool
) -> torch.Tensor:
    """
    Clip gradients to a total norm.

    Args:
        gates: of all prepared optimizers.
        parameters: whose gradients.
        max_norm: the largest total norm.
        norm_type: which norm.
        sync: False inside a window: gradients are partial and differ per process, so they are measured, not clipped.

    Returns:
        The total norm before clipping.
    """
    if not sync:
        found = [parameter.grad for parameter in parameters if parameter.grad is not None]
        return torch.nn.utils.get_total_norm(found, norm_type)
    for gate in owners(gates, parameters):
        gate.unscale()
    return clip_grad_norm_(parameters, max_norm, norm_type)


def clip_values(gates: Iterable[Gate], parameters: list[torch.Tensor], value: float, sync: bool) -> None:
    """Clip every element of the gradients to [-value, value]; inside a window nothing is done."""
    if not sync:
        return
    for gate in owners(gates, parameters):
        gate.unscale()
    clip_grad_value_(parameters, value)
