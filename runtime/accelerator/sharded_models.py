"""Which models are sharded, and over which processes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..collectives.world import World
from ..config.settings import Settings
from ..device.kinds import kind_of
from ..device.placement import map_tree
from ..device.precision import Precision
from ..strategies.extend import extend
from ..strategies.strategy import TrainingEngine
from ..torch_sharding import check_torch

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

log = logging.getLogger(__name__)


class ShardedModels:
    """
    Shards models over the processes.

    Args:
        settings: of the accelerator.
        world: the processes.
        precision: of forward passes.
    """

    def __init__(self, settings: Settings, world: World, precision: Precision) -> None:
        self._settings = settings
        self._world = world
        self._precision = precision
        self._mesh: DeviceMesh | None = None
        if kind_of(world.device).drives_all:  # another strategy shards there
            return
        if settings.sharding is not None and world.alone:
            log.warning("there is one process: sharding its weights changes nothing, and they stay whole.")
            return
        if settings.sharding is not None:
            check_torch()
        if settings.mesh is not None:
            settings.mesh.check(world.size)

    @property
    def mesh(self) -> Any:
        """The processes as a mesh; None where nothing is sharded. All processes ask for the first time together."""
        if self._mesh is None and not self._world.alone and (self._settings.sharding or self._settings.mesh):
            from ..config.parallelism import ParallelismConfig  # not needed by most

            wanted = self._settings.mesh
            if wanted is None or wanted.total_size == 1:
                wanted = ParallelismConfig(dp_replicate_size=1, dp_shard_size=self._world.size)
            self._mesh = wanted.get_device_mesh(self._world.device.type)
        return self._mesh

    def shards(self, model: nn.Module) -> bool:
        """This model is to be sharded: what is wrapped by the script itself, or has no weights, is not."""
        if self._settings.sharding is None or self._world.alone or isinstance(model, DistributedDataParallel):
            return False
        return any(one.dim() for one in model.parameters())

    def shard(
        self,
        model: nn.Module,
        models: list[nn.Module],
        scaler: torch.amp.GradScaler | None,
        broadcast_buffers: bool,
    ) -> TrainingEngine:
        """
        Shard a model; it stays the same object.

        Args:
            model: on the CPU, or where it is.
            models: all models of the program: a class of units that one of them has need not be in each.
            scaler: for fp16; None otherwise.
            broadcast_buffers: buffers follow rank 0 after every exchange.
        """
        from ..strategies.fully_sharded import ShardedFront, saving_whole_weights  # not needed by most
        from ..strategies.sharding import Sharding, shard
        from ..torch_sharding import unscale_apart

        assert self._settings.sharding is not None
        how = Sharding(
            self._settings.sharding,
            self.mesh,
            self._world,
            self._precision,
            self._settings.dynamo,
            models,
            broadcast_buffers,
        )
        if scaler is not None:
            unscale_apart(scaler)
        elif getattr(self._settings.sharding.mixed_precision_policy, "param_dtype", None) is torch.float16:
            log.warning(
                "mixed_precision_policy lets %s compute in fp16, and nothing scales its loss: small gradients become "
                'zeros. Use Accelerator(mixed_precision="fp16"), which scales, or "bf16".',
                type(model).__name__,
            )
        own = type(model)
        engine = shard(model, how)
        if extend(model, engine, ShardedFront):
            type(model).__name__, type(model).__qualname__ = own.__name__, own.__qualname__  # torch's says FSDP
            if hasattr(own, "save_pretrained"):
                setattr(type(model), "save_pretrained", saving_whole_weights(own))  # noqa: B010 - its class is not known
        return engine


def modules_in(tree: Any) -> list[nn.Module]:
    """The models in what is prepared together."""
    found: list[nn.Module] = []
    map_tree(lambda leaf: found.append(leaf) if isinstance(leaf, nn.Module) else None, tree)
    return found
