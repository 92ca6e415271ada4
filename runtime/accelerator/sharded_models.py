"""Which models are sharded, and over which processes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..collectives.world import World
from ..config.parallelism import ParallelismConfig
from ..config.settings import Settings
from ..device.precision import Precision
from ..strategies.extend import extend
from ..strategies.strategy import Strategy

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
        if settings.sharding is not None and world.alone:
            log.warning("there is one process: sharding its weights changes nothing, and they stay whole.")
        elif settings.sharding is not None or settings.mesh is not None:
            _ = self.mesh  # an error now, where sizes do not fit

    @property
    def mesh(self) -> Any:
        """The processes as a mesh; None where nothing is sharded."""
        if self._mesh is None and not self._world.alone and (self._settings.sharding or self._settings.mesh):
            wanted = self._settings.mesh or ParallelismConfig(dp_shard_size=self._world.size)
            self._mesh = wanted.build_device_mesh(self._world.device.type)
        return self._mesh

    def shards(self, model: nn.Module) -> bool:
        """This model is to be sharded: what is wrapped by the script itself, or has no weights, is not."""
        if self._settings.sharding is None or self._world.alone or isinstance(model, DistributedDataParallel):
            return False
        return any(one.dim() for one in model.parameters())

    def shard(self, model: nn.Module, broadcast_buffers: bool) -> Strategy:
        """Shard a model; it stays the same object."""
        from ..strategies.fully_sharded import ShardedFront  # not needed by most
        from ..strategies.sharding import Sharding, shard

        assert self._settings.sharding is not None
        how = Sharding(
            self._settings.sharding,
            self.mesh,
            self._world,
            self._precision,
            self._settings.dynamo,
            broadcast_buffers,
        )
        own = type(model)
        engine = shard(model, how)
        if extend(model, engine, ShardedFront):
            type(model).__name__, type(model).__qualname__ = own.__name__, own.__qualname__  # torch's says FSDP
        return engine
