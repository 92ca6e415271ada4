"""Which process this is, before there is an accelerator."""

from __future__ import annotations

from typing import Any

from ..config.environment import read_environment


class EarlyState:
    """
    The place of this process in its job, as its launcher describes it in the environment.

    Nothing is started and no device is chosen, so that it may be asked anywhere: where a module is imported, before the
    script has read its options, in the workers of a loader, in a script that is not distributed at all. It cannot wait
    for other processes; `PartialState` can.

    Raises:
        TopologyError: a variable of the launcher is not a number.
    """

    process_index: int
    """The number of this process in the job; 0 without a launcher."""
    local_process_index: int
    """Its number on this machine."""

    def __init__(self) -> None:
        environment = read_environment()
        alone = environment.world_size in (None, 1)
        self.process_index = 0 if alone else environment.rank or 0
        here = environment.local_rank
        self.local_process_index = 0 if alone else self.process_index if here is None else here

    @property
    def is_main_process(self) -> bool:
        """The first process of the job."""
        return self.process_index == 0

    @property
    def is_local_main_process(self) -> bool:
        """The first process of its machine."""
        return self.local_process_index == 0

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print once per machine."""
        if self.is_local_main_process:
            print(*args, **kwargs)  # noqa: T201
