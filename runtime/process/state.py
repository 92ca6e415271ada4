"""What a script without a training loop needs of the process it runs in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

import torch

from ..config.environment import read_environment
from ..device.choice import choose_device, distributed_type
from ..device.kinds import kind_of
from ..errors import MixedUseError, TopologyError, missing
from ..types import Decorated, DistributedType
from . import group
from .guards import goes_first, only_when
from .splitting import split
from .topology import ALONE, Topology, imported_by_worker, topology


class PartialState:
    """
    The place of this process in its job, and its device. It is found out once: all objects of this class say the same.

    Args:
        cpu: stay on the CPU even where there is an accelerator.
        backend: of the process group; what the device needs when None.
        init_method: where the processes meet, as torch writes it; what the environment says when None.
        timeout: of collectives; torch's own when None.
        more: accepted.

    Raises:
        TopologyError: the environment describes several processes, but not completely.
        MixedUseError: `cpu`, but the process computes on an accelerator already; a ValueError.
    """

    _shared_state: ClassVar[dict[str, Any]] = {}
    """What all of them know; empty until the first one is made."""
    made_in: ClassVar[int] = 0
    """The process that has made one; a fork of it has not."""

    topology: Topology
    device: torch.device
    distributed_type: DistributedType
    num_processes: int
    process_index: int
    local_process_index: int
    is_main_process: bool
    is_local_main_process: bool
    is_last_process: bool
    use_distributed: bool
    backend: str | None
    """What tensors travel by; None for one process."""
    debug: bool
    """Accepted; calls together are always compared here."""

    def __init__(
        self,
        cpu: bool = False,
        backend: str | None = None,
        init_method: str | None = None,
        timeout: timedelta | None = None,
        **more: Any,
    ) -> None:
        self.__dict__ = PartialState._shared_state
        if self.initialized and PartialState.made_in == os.getpid():
            if cpu and not kind_of(self.device).is_cpu:
                raise MixedUseError(
                    f"cpu=True, but this process already computes on {self.device}. Pass cpu=True where the first "
                    "Accelerator or PartialState is created."
                )
            return
        PartialState.made_in = os.getpid()
        self.__dict__.clear()
        environment = read_environment()
        helper = imported_by_worker()
        place = ALONE if helper else topology(environment)
        wanted = None if helper else environment.device
        stays = cpu or environment.cpu or helper
        device = choose_device(place.local_rank, stays, wanted, environment.pjrt_device)
        if place.distributed and kind_of(device).drives_all:
            raise _one_process(place)
        group.start(place, device, timeout, backend, init_method)
        self.__dict__.update(
            topology=place,
            device=device,
            distributed_type=distributed_type(place.world_size, device),
            num_processes=place.world_size,
            process_index=place.rank,
            local_process_index=place.local_rank,
            is_main_process=place.is_main,
            is_local_main_process=place.is_local_main,
            is_last_process=place.is_last,
            use_distributed=place.distributed,
            backend=kind_of(device).backend() if kind_of(device).drives_all else group.backend(),
            debug=False,
            _cpu=cpu or environment.cpu,
        )

    def set_device(self) -> None:
        """Make the device of this process torch's current one, again. It is chosen once, and stays."""
        kind_of(self.device).select(self.device)

    def __getattr__(self, name: str) -> Any:
        known = {*PartialState.__annotations__} - {"_shared_state", "made_in"}
        if name in known:
            raise AttributeError(
                f"`PartialState` object has no attribute `{name}`. This happens if `PartialState._reset_state()` was "
                "called and no `Accelerator` or `PartialState` was created afterwards."
            )
        said = f"'PartialState' object has no attribute '{name}'"
        raise AttributeError(said if name.startswith("_") else missing(said, name, (*known, *dir(type(self)))))

    def __repr__(self) -> str:
        travels = f"  Backend: {self.backend}" if self.backend else ""
        return (
            f"Distributed environment: {self.distributed_type}{travels}\n"
            f"Num processes: {self.num_processes}\n"
            f"Process index: {self.process_index}\n"
            f"Local process index: {self.local_process_index}\n"
            f"Device: {self.device}\n"
        )

    @property
    def initialized(self) -> bool:
        """The place of this process is known."""
        return "topology" in PartialState._shared_state

    def destroy_process_group(self) -> None:
        """Leave the process group. Happens by itself when the script ends."""
        group.leave()

    @classmethod
    def _reset_state(cls) -> None:
        """Forget what is known: the next one finds it out anew."""
        PartialState._shared_state.clear()

    def wait_for_everyone(self) -> None:
        """Return when every process has come here."""
        group.wait_for_everyone()

    def main_process_first(self) -> AbstractContextManager[None]:
        """The main process runs the body first, then all others."""
        return goes_first(self.is_main_process)

    def local_main_process_first(self) -> AbstractContextManager[None]:
        """The first process of every machine runs the body first, then all others."""
        return goes_first(self.is_local_main_process)

    def on_main_process(self, function: Decorated) -> Decorated:
        """Decorator: run on the main process only; elsewhere the call returns None."""
        return only_when(lambda: self.is_main_process, function)

    def on_local_main_process(self, function: Decorated) -> Decorated:
        """Decorator: run on the first process of every machine only."""
        return only_when(lambda: self.is_local_main_process, function)

    def on_last_process(self, function: Decorated) -> Decorated:
        """Decorator: run on the last process only."""
        return only_when(lambda: self.is_last_process, function)

    def on_process(self, function: Decorated | None = None, process_index: int | None = None) -> Decorated:
        """Decorator: run on the process with this number only; with one process, always."""
        if function is None:
            return partial(self.on_process, process_index=process_index)
        return only_when(lambda: not self.use_distributed or self.process_index == process_index, function)

    def on_local_process(self, function: Decorated | None = None, local_process_index: int | None = None) -> Decorated:
        """Decorator: run on the process with this number on its machine only; with one process, always."""
        if function is None:
            return partial(self.on_local_process, local_process_index=local_process_index)
        return only_when(lambda: not self.use_distributed or self.local_process_index == local_process_index, function)

    @contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """
        The part of `inputs` that is this process's: the first processes get one more where they do not divide.

        Args:
            inputs: a list, a tuple, a tensor, an array, a data set, or a dict of such; it is not changed.
            apply_padding: repeat the last element, so that all processes have as many (tensors come to the device).

        Raises:
            ValueError: the values of a dict have different lengths.
        """
        if not self.use_distributed:
            yield inputs
        else:
            yield split(inputs, self.process_index, self.num_processes, apply_padding, self.device)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print once per machine."""
        if self.is_local_main_process:
            print(*args, **kwargs)  # noqa: T201


def _one_process(place: Topology) -> TopologyError:
    return TopologyError(
        f"WORLD_SIZE is {place.world_size}, but by torch_xla one process drives all devices. Start one process "
        "(torchlift launch without --num-processes); for processes on the CPU, add --cpu."
    )
