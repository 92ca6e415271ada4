"""
How many bytes weights, gradients and optimizer states take on one process.

Nothing is computed by a formula for an optimizer: torch's own class makes its states, on the meta device, for weights
of the shapes that a process keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..config.fsdp import FullyShardedDataParallelPlugin
from ..errors import ConfigError, UnknownWordError
from .target import MeasuredModel, MeasuredWeight, parse_call


@dataclass(frozen=True)
class NumberTypes:
    """In which types a run keeps its numbers."""

    word: str
    kept: torch.dtype
    """Weights, gradients and optimizer states."""
    computes: torch.dtype
    """Forward and backward passes."""


PRECISIONS = {
    "fp32": NumberTypes("fp32", torch.float32, torch.float32),
    "bf16-mixed": NumberTypes("bf16-mixed", torch.float32, torch.bfloat16),
    "fp16-mixed": NumberTypes("fp16-mixed", torch.float32, torch.float16),
    "bf16": NumberTypes("bf16", torch.bfloat16, torch.bfloat16),
    "fp16": NumberTypes("fp16", torch.float16, torch.float16),
    "fp64": NumberTypes("fp64", torch.float64, torch.float64),
}
_WHOLE = ("Adafactor", "Rprop", "LBFGS", "SparseAdam")
"""Of torch.optim: they cannot work on shards, or take another kind of gradients."""


@dataclass(frozen=True)
class MemoryNeeds:
    """Bytes on the process that has the most."""

    weights: int
    """Shards, and buffers, which are not sharded."""
    gradients: int
    optimizer: int
    gathered: int
    """The largest unit, whole, with its gradients; 0 where nothing is sharded."""

    @property
    def total(self) -> int:
        """All of these at once."""
        return self.weights + self.gradients + self.optimizer + self.gathered


def figures(
    model: MeasuredModel,
    precision: NumberTypes,
    optimizer: str,
    shards: int,
    plugin: FullyShardedDataParallelPlugin | None = None,
) -> MemoryNeeds:
    """
    Estimate one configuration. Activations, and what torch itself needs, come on top.

    Args:
        model: its weights.
        precision: in which types.
        optimizer: a class of torch.optim, with settings if need be: "AdamW", "SGD(momentum=0.9)".
        shards: among how many processes weights are sharded; 1 for replicas.
        plugin: which modules are gathered by themselves; the plugin's default when None.

    Raises:
        UnknownWordError, ConfigError: the optimizer is none, or cannot be estimated.
    """
    parameters = [one for one in model.weights if one.parameter]
    trained = [one for one in parameters if one.trained]
    own = {id(one): _shard(one.shape, shards) for one in parameters}
    buffers = sum(_bytes(one.shape, _type(one, precision.kept)) for one in model.weights if not one.parameter)
    kept = sum(_bytes(own[id(one)], _type(one, precision.kept)) for one in parameters)
    return MemoryNeeds(
        weights=kept + buffers,
        gradients=sum(_bytes(own[id(one)], _type(one, precision.kept)) for one in trained),
        optimizer=_states(optimizer, [(own[id(one)], _type(one, precision.kept)) for one in trained], shards),
        gathered=_gathered(model, parameters, precision, plugin) if shards > 1 else 0,
    )


def _shard(shape: Sequence[int], shards: int) -> tuple[int, ...]:
    """What the first process keeps: weights are cut along their first dimension."""
    return (-(-shape[0] // shards), *shape[1:]) if shape else ()


def _type(weight: MeasuredWeight, dtype: torch.dtype) -> torch.dtype:
    return dtype if weight.dtype.is_floating_point else weight.dtype


def _bytes(shape: Iterable[int], dtype: torch.dtype) -> int:
    numbers = 1
    for size in shape:
        numbers *= size
    return numbers * dtype.itemsize


def _states(text: str, weights: list[tuple[tuple[int, ...], torch.dtype]], shards: int) -> int:
    name, positional, named = parse_call(text)
    if shards > 1 and name in _WHOLE:
        raise ConfigError(f"{name} does not work on sharded weights. Use another optimizer, or --shards 1.")
    made = [nn.Parameter(torch.empty(shape, dtype=dtype, device="meta")) for shape, dtype in weights]
    if not made:
        return 0
    optimizer = _optimizer(name, made, positional, named)
    for one in made:
        one.grad = torch.empty_like(one)
    try:
        optimizer.step()
    except (RuntimeError, TypeError) as error:
        # some read a number out of a weight, which the meta device has not; their states are made before that
        if not all(one in optimizer.state for one in made):
            raise ConfigError(f"the states of {name} cannot be estimated: {error}") from error
    states = [value for one in made for value in optimizer.state[one].values() if isinstance(value, torch.Tensor)]
    return sum(_bytes(one.shape, one.dtype) for one in states)


def _optimizer(name: str, made: list[nn.Parameter], positional: list[Any], named: dict[str, Any]) -> Any:
    known = {one.casefold(): one for one in dir(torch.optim) if isinstance(getattr(torch.optim, one), type)}
    known.pop("optimizer", None)
    found = known.get(name.casefold())
    if found is None:
        raise UnknownWordError("the optimizer", name, sorted(known.values()))
    try:
        return getattr(torch.optim, found)(made, *positional, **named)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"torch.optim.{found} cannot be made: {error}") from error


def _gathered(
    model: MeasuredModel,
    parameters: list[MeasuredWeight],
    precision: NumberTypes,
    plugin: FullyShardedDataParallelPlugin | None,
) -> int:
    """The largest unit, whole: one of the blocks, or what is in none of them. Gradients are as large as weights."""
    rest = {
        one.name: _bytes(one.shape, _type(one, precision.computes)) * (2 if one.trained else 1) for one in parameters
    }
    if model.module is None:
        return sum(rest.values())
    names = {id(one): name for name, one in model.module.named_parameters()}
    sizes = []
    for unit in (plugin or FullyShardedDataParallelPlugin()).units(model.module):
        sizes.append(sum(rest.pop(names[id(one)], 0) for one in unit.parameters()))
    return max([*sizes, sum(rest.values())], default=0)
