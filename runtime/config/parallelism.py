"""How many processes keep copies of weights, and among how many weights are sharded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from ..errors import MixedUseError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(kw_only=True)
class ParallelismConfig:
    """The dimensions of the mesh of processes."""

    dp_replicate_size: int = 1
    """How many groups of processes keep copies of one another."""
    dp_shard_size: int = 1
    """Among how many processes weights are sharded."""

    def build_device_mesh(self, device_type: str) -> DeviceMesh:
        """
        The mesh of all processes.

        Raises:
            MixedUseError: its size is not the number of processes.
        """
        from torch.distributed.device_mesh import init_device_mesh

        size = dist.get_world_size()
        if self.dp_replicate_size * self.dp_shard_size != size:
            raise MixedUseError(
                f"dp_replicate_size={self.dp_replicate_size} times dp_shard_size={self.dp_shard_size} must be the "
                f"number of processes, which is {size}."
            )
        if self.dp_replicate_size > 1:
            return init_device_mesh(
                device_type, (self.dp_replicate_size, self.dp_shard_size), mesh_dim_names=("dp_replicate", "dp_shard")
            )
        return init_device_mesh(device_type, (self.dp_shard_size,), mesh_dim_names=("dp_shard",))
