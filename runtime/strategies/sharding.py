"""Laying a model over the processes in parts. `shard` shows the order; each of its steps is a function below."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from ..collectives.world import World
from ..config.fsdp import FullyShardedDataParallelPlugin
from ..config.handlers import TorchDynamoPlugin
from ..device.precision import Precision
from ..errors import MixedUseError, NotAvailableYet
from ..process import watched_calls
from ..torch_sharding import (
    begin_sharded,
    checkpoint_in_place,
    guard_shards,
    move_hooks,
    sharded_parts,
    whole_parameter,
)
from .compiling import compile_in_place
from .data_parallel import DataParallelEngine
from .former import replace as make_former
from .full_state import accept_whole_weights
from .fully_sharded import FullyShardedEngine
from .late_weights import all_tensors, fill_from_rank_0, give_memory, lacks_data
from .weights import check_same, equalise

log = logging.getLogger(__name__)

_CONTAINERS = (nn.ModuleList, nn.ModuleDict)
_LOW = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Sharding:
    """How models are sharded."""

    plugin: FullyShardedDataParallelPlugin
    mesh: Any
    world: World
    precision: Precision
    dynamo: TorchDynamoPlugin
    models: list[nn.Module]
    """All models of the program so far."""
    broadcast_buffers: bool = True


@dataclass
class _Laying:
    """One model on its way."""

    model: nn.Module
    how: Sharding
    roots: list[nn.Module] = field(default_factory=list)
    units: list[nn.Module] = field(default_factory=list)
    """Innermost first, without the roots."""
    whole: dict[int, nn.Parameter] = field(default_factory=dict)
    """The parameters that every process keeps whole, by their identities."""
    before: dict[str, nn.Parameter] = field(default_factory=dict)
    """The parameters of the script."""
    late: bool = False
    """Only rank 0 has weights; the others get their parts when the model is sharded."""
    source: dict[str, torch.Tensor] = field(default_factory=dict)
    """On rank 0, those weights."""


def shard(model: nn.Module, how: Sharding) -> FullyShardedEngine:
    """
    Shard a model, in place; the engine is beside it from then on.

    Raises:
        MixedUseError, NotAvailableYet: it cannot be sharded; nothing has been changed.
    """
    laying = _Laying(model, how)
    for step in (
        _plan,
        _make_equal,
        _checkpoint_activations,
        _compile,
        _shard_weights,
        _forward_from_before,
    ):
        step(laying)
    return FullyShardedEngine(
        model, laying.roots, how.world, how.precision, _engine_of_the_rest(laying), how.broadcast_buffers
    )


def shardable(model: nn.Module) -> bool:
    """There is something to shard: a parameter of at least one dimension."""
    return any(one.dim() for one in model.parameters())


# ---------------------------------------------------------------- the steps


def _plan(laying: _Laying) -> None:
    """What is gathered together, and what stays whole."""
    model = laying.model
    laying.before = dict(model.named_parameters())
    _check(model, laying.before)
    laying.roots = _roots(model)
    laying.units = _units(laying.how.plugin.units(model, laying.how.models), laying.roots, model)
    laying.whole = _kept_whole(model, laying.how.plugin, laying.before.values())


def _make_equal(laying: _Laying) -> None:
    """Weights and buffers become those of rank 0; where other processes have none yet, once they are sharded."""
    world, model = laying.how.world, laying.model
    check_same(world, model)
    laying.late = lacks_data(world, model)
    if laying.late:
        give_memory(model, laying.whole, world.device)
        laying.source = {name: one.detach() for name, one in all_tensors(model)} if world.rank == 0 else {}
    else:
        equalise(world, [*model.parameters(), *model.buffers()])


def _checkpoint_activations(laying: _Laying) -> None:
    if not laying.how.plugin.activation_checkpointing:
        return
    if not laying.units:
        log.warning(
            "activation_checkpointing computes the activations of each unit again, and this %s has no units: they are "
            "kept. Name the classes of its blocks: transformer_cls_names_to_wrap=[...].",
            type(laying.model).__name__,
        )
    for unit in laying.units:
        checkpoint_in_place(unit)


def _compile(laying: _Laying) -> None:
    if laying.how.dynamo.wanted:
        compile_in_place(laying.model, laying.how.dynamo)


def _shard_weights(laying: _Laying) -> None:
    from torch.distributed.fsdp import fully_shard

    how, world = laying.how, laying.how.world
    options: dict[str, Any] = {
        "mesh": how.mesh,
        "reshard_after_forward": how.plugin.reshard_after_forward,
        "ignored_params": set(laying.whole.values()),
    }
    offload = _offload(how.plugin, world.device)
    if offload is not None:
        options["offload_policy"] = offload
    inner, outer = _policies(how.plugin, how.precision)
    for one in laying.whole.values():
        one.data = one.data.to(world.device)
    for one in laying.before.values():
        if id(one) not in laying.whole and not one.is_contiguous():
            one.data = one.data.contiguous()
    guard_shards(how.mesh, lambda: _announce(world))
    for unit in laying.units:
        fully_shard(unit, **options, mp_policy=inner)
    for root in laying.roots:
        fully_shard(root, **options, mp_policy=outer)
    if laying.late:
        fill_from_rank_0(world, laying.model, laying.source)
    for root in laying.roots:
        begin_sharded(root)
    accept_whole_weights(laying.model)


def _announce(world: World) -> None:
    world.note("read a number of a sharded tensor")
    watched_calls.done()


def _forward_from_before(laying: _Laying) -> None:
    """References that the script holds to parameters go on working."""
    parts = {id(part.sharded_param): part for part in sharded_parts(laying.model)}
    now = dict(laying.model.named_parameters())
    for name, parameter in laying.before.items():
        if id(now[name]) in parts:
            part = parts[id(now[name])]
            move_hooks(parameter, whole_parameter(part), part.sharded_param)
            make_former(parameter, part)
        elif now[name] is not parameter:  # kept whole, and on the meta device before
            make_former(parameter, SimpleNamespace(sharded_param=now[name]))


def _engine_of_the_rest(laying: _Laying) -> DataParallelEngine | None:
    """Gradients of parameters that are kept whole are exchanged when a pass is over."""
    if not laying.whole:
        return None
    holder = nn.ParameterList(laying.whole.values())
    return DataParallelEngine(holder, laying.how.world, laying.how.precision, during=False)


# ---------------------------------------------------------------- what is sharded, and how


def _check(model: nn.Module, parameters: dict[str, nn.Parameter]) -> None:
    name = type(model).__name__
    if any(hasattr(part, "reshard") and hasattr(part, "unshard") for part in model.modules()):
        raise MixedUseError(f"the {name} is sharded already. Prepare it once, or leave out fully_shard in the script.")
    for path, one in parameters.items():
        if type(one) is not nn.Parameter:
            raise NotAvailableYet(
                f"sharding {path} of the {name}, a {type(one).__name__}",
                "Run a forward pass first if its shape is not known yet; else name its module in ignored_modules.",
            )


def _roots(model: nn.Module) -> list[nn.Module]:
    """The modules whose forward passes begin one: the model itself, unless it is a mere list of models."""
    if isinstance(model, _CONTAINERS) and type(model).forward is nn.Module.forward:
        if any(True for _ in model.parameters(recurse=False)):
            raise MixedUseError(
                f"a {type(model).__name__} with weights of its own cannot be sharded: it has no forward."
            )
        return [root for child in model.children() if shardable(child) for root in _roots(child)]
    return [model]


def _units(wanted: list[nn.Module], roots: list[nn.Module], model: nn.Module) -> list[nn.Module]:
    """Innermost first; without those that share a weight with something outside: their weights go with the root."""
    chosen = set(map(id, wanted)) - set(map(id, roots))
    ordered = [part for part in model.modules() if id(part) in chosen][::-1]
    lists = [type(one).__name__ for one in ordered if isinstance(one, _CONTAINERS)]
    if lists:
        raise MixedUseError(f"a {lists[0]} cannot be a unit: it has no forward. Name the class of what is in it.")
    uses = Counter(id(one) for part in model.modules() for one in part.parameters(recurse=False))
    return [unit for unit in ordered if not _shares(unit, uses)]


def _shares(unit: nn.Module, uses: Counter[int]) -> bool:
    inside = Counter(id(one) for part in unit.modules() for one in part.parameters(recurse=False))
    return any(uses[key] > count for key, count in inside.items())


def _kept_whole(
    model: nn.Module, plugin: FullyShardedDataParallelPlugin, parameters: Iterable[nn.Parameter]
) -> dict[int, nn.Parameter]:
    """Scalars, tables with sparse gradients, what is no real number, other types than most, and what is named."""
    kept = {id(one): one for one in plugin.ignored_parameters(model)}
    for part in model.modules():
        if getattr(part, "sparse", False):
            kept.update((id(one), one) for one in part.parameters())
    sizes: Counter[torch.dtype] = Counter()
    for one in parameters:
        if one.requires_grad and one.dim() and one.is_floating_point():
            sizes[one.dtype] += one.numel()
    most = max(sizes, key=lambda kind: sizes[kind]) if sizes else None
    for one in parameters:
        other = one.requires_grad and one.dtype is not most
        if not one.dim() or not one.is_floating_point() or other:
            kept[id(one)] = one
    return kept


def _policies(plugin: FullyShardedDataParallelPlugin, precision: Precision) -> tuple[Any, Any]:
    """For inner units, and for the root, whose output is in fp32."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    policy: Any = plugin.mixed_precision_policy
    if policy is None:
        policy = MixedPrecisionPolicy(param_dtype=precision.dtype)
    if policy.param_dtype in _LOW and policy.reduce_dtype is None:
        policy = replace(policy, reduce_dtype=torch.float32)
    if policy.param_dtype in _LOW and policy.output_dtype in (None, torch.float32):
        return replace(policy, output_dtype=None), replace(policy, output_dtype=torch.float32)
    return policy, policy


def _offload(plugin: FullyShardedDataParallelPlugin, device: torch.device) -> Any:
    if not plugin.offloads:
        return None
    policy: Any = plugin.cpu_offload
    return replace(policy, pin_memory=False) if device.type == "cpu" else policy  # there is no other memory
