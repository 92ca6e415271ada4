"""Which process this is among how many, and who runs what. The part of the facade that every script may ask."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from ..data.progress import Progress
from ..monitoring.monitor import Monitor
from ..process import group
from ..process.state import PartialState
from ..strategies.full_state import whole_everywhere
from ..types import Decorated, DistributedType
from .state import AcceleratorState, GradientState


class Placed:
    """Properties and methods of `Accelerator` about the place of this process in its job."""

    _progress: Progress
    _found: PartialState
    """Who runs what is asked of it, also after `AcceleratorState._reset_state()`, as in Accelerate."""
    _era: object
    _monitor: Monitor

    @property
    def _place(self) -> PartialState:
        """
        The number of this process, its device, and how many there are.

        Raises:
            AttributeError: that was to be forgotten since the accelerator was made.
        """
        if self._era is not AcceleratorState._era:
            raise AttributeError(
                "`AcceleratorState` object has no attribute for this Accelerator any more. This happens if "
                "`AcceleratorState._reset_state()` was called and no `Accelerator` was created afterwards: create a "
                "new one."
            )
        return self._found

    @_place.setter
    def _place(self, place: PartialState) -> None:
        self._found, self._era = place, AcceleratorState._era

    @property
    def state(self) -> AcceleratorState:
        """Place and precision together, under the names of Accelerate."""
        return AcceleratorState(accelerator=self)

    @property
    def gradient_state(self) -> GradientState:
        """Where accumulation and the loop over the data are."""
        found: GradientState = self._progress.gradient_state
        return found

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return self._place.device

    @property
    def distributed_type(self) -> DistributedType:
        """How the processes work together; `NO` for one process."""
        return self._place.distributed_type

    @property
    def num_processes(self) -> int:
        """How many processes the job has."""
        return self._place.num_processes

    @property
    def process_index(self) -> int:
        """The number of this process in the job, from 0."""
        return self._place.process_index

    @property
    def local_process_index(self) -> int:
        """The number of this process on its machine, from 0."""
        return self._place.local_process_index

    @property
    def is_main_process(self) -> bool:
        """This is process 0 of the job."""
        return self._found.is_main_process

    @property
    def is_local_main_process(self) -> bool:
        """This is process 0 of its machine."""
        return self._found.is_local_main_process

    @property
    def is_last_process(self) -> bool:
        """This is the last process of the job."""
        return self._found.is_last_process

    @property
    def use_distributed(self) -> bool:
        """There is more than one process."""
        return self._found.use_distributed

    def wait_for_everyone(self) -> None:
        """Return when every process has come here."""
        group.wait_for_everyone()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print once per machine. Sharded tensors are printed as a whole: all processes call it then."""
        wholes = (whole_everywhere(one) if isinstance(one, torch.Tensor) else one for one in args)
        self._found.print(*wholes, **kwargs)

    def main_process_first(self) -> AbstractContextManager[None]:
        """The main process runs the body first, then all others; they are released also when it raises."""
        return self._found.main_process_first()

    def local_main_process_first(self) -> AbstractContextManager[None]:
        """The first process of every machine runs the body first, then all others."""
        return self._found.local_main_process_first()

    def on_main_process(self, function: Decorated) -> Decorated:
        """Decorator: run on the main process only; elsewhere the call returns None."""
        return self._found.on_main_process(function)

    def on_local_main_process(self, function: Decorated) -> Decorated:
        """Decorator: run on the first process of every machine only; elsewhere the call returns None."""
        return self._found.on_local_main_process(function)

    def on_last_process(self, function: Decorated) -> Decorated:
        """Decorator: run on the last process only; elsewhere the call returns None."""
        return self._found.on_last_process(function)

    def on_process(self, function: Decorated | None = None, process_index: int | None = None) -> Decorated:
        """Decorator: run on the process with this number only; elsewhere the call returns None."""
        return self._found.on_process(function, process_index)

    def on_local_process(self, function: Decorated | None = None, local_process_index: int | None = None) -> Decorated:
        """Decorator: run on the process with this number on its machine only; elsewhere the call returns None."""
        return self._found.on_local_process(function, local_process_index)

    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> AbstractContextManager[Any]:
        """
        A context that gives the part of `inputs` that is this process's.

        Args:
            inputs: a list, a tuple, a tensor, an array, a data set, or a dict of such; it is not changed.
            apply_padding: repeat the last element, so that all processes have as many (tensors come to the device).

        Raises:
            ValueError: the values of a dict have different lengths.
        """
        self._monitor.shared_by_hand()
        return self._found.split_between_processes(inputs, apply_padding)
