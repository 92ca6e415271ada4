"""Which process this is among how many, from the environment alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType

from ..config.environment import Environment
from ..errors import TopologyError


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The place of one process in its job."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    meet: str = "env://"
    """Where the processes meet, as torch writes it."""
    restart: int = 0
    """How often the job has been started again."""

    @property
    def distributed(self) -> bool:
        """More than one process."""
        return self.world_size > 1

    @property
    def is_main(self) -> bool:
        """The first process of the job."""
        return self.rank == 0

    @property
    def is_local_main(self) -> bool:
        """The first process of its machine."""
        return self.local_rank == 0

    @property
    def is_last(self) -> bool:
        """The last process of the job."""
        return self.rank == self.world_size - 1


ALONE = Topology(rank=0, world_size=1, local_rank=0, local_world_size=1)


def imported_by_worker() -> bool:
    """
    Whether this code runs because a worker process (of a loader, for one) imports the script anew.

    So it is where workers are spawned, or come from a fork server. What the script makes at its top level belongs to
    the process that it was started in: a worker has the same RANK, and must not take part in the job.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__mp_main__":
            return True
        frame = frame.f_back
    return False


def topology(environment: Environment) -> Topology:
    """
    Read the place of this process. No WORLD_SIZE, or 1, means a process of its own.

    Raises:
        TopologyError: WORLD_SIZE says several processes, but the rest of the description is missing or wrong.
    """
    world_size = environment.world_size
    if world_size is None or world_size == 1:
        return ALONE
    if world_size < 1:
        raise TopologyError(f"WORLD_SIZE is {world_size}; it must be 1 or more.")
    rank = environment.rank
    if rank is None or environment.master_addr is None or environment.master_port is None:
        raise TopologyError(
            f"WORLD_SIZE is {world_size}, but RANK, MASTER_ADDR or MASTER_PORT is not set. Start the script with "
            f"`torchlift launch --num-processes {world_size} script.py` or with torchrun, or unset WORLD_SIZE."
        )
    if not 0 <= rank < world_size:
        raise TopologyError(f"RANK is {rank}, but WORLD_SIZE is {world_size}; ranks go from 0 to {world_size - 1}.")
    local_world_size = environment.local_world_size or world_size
    local_rank = environment.local_rank if environment.local_rank is not None else rank % local_world_size
    return Topology(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=local_world_size,
        meet="env://" if environment.by_torch else f"tcp://{environment.master_addr}:{environment.master_port}",
        restart=environment.restart,
    )
