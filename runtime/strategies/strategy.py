"""
What is asked of a strategy: the way in which one model is trained on all processes.

There are two: `data_parallel` keeps a whole model on every process, `fully_sharded` keeps a part of each weight there.
Each has a function that lays a model over the processes, and gives the engine that is beside it from then on.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any

import torch
from torch import nn

from ..collectives.world import World
from ..device.precision import Precision, to_fp32
from .graph import Graph
from .weights import equalise

_NUMBERS = count(1)
"""Processes prepare their models in the same order."""


class PrecisionEngine:
    """Runs a model's forward pass in mixed precision; its outputs are in fp32."""

    def __init__(self, precision: Precision) -> None:
        self._precision = precision

    @property
    def mixed(self) -> bool:
        """There is something to do also for methods beside `forward`."""
        return self._precision.mixed

    def call(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The forward pass."""
        return self.around(call, args, kwargs)

    def around(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Any method that computes with weights."""
        if not self._precision.mixed:
            return call(*args, **kwargs)
        with self._precision.autocast():
            output = call(*args, **kwargs)
        return to_fp32(output)


class TrainingEngine(PrecisionEngine, ABC):
    """
    The engine of one model that is trained on all processes.

    Args:
        model: as the script knows it.
        world: the processes.
        precision: of its forward pass.
    """

    def __init__(self, model: nn.Module, world: World, precision: Precision) -> None:
        super().__init__(precision)
        self.when_equal: list[Callable[[TrainingEngine], None]] = []
        """Called on all processes when the gradients of a pass are those of all of them: the one place for it."""
        self.when_plain: list[Callable[[], None]] = []
        """Called on all processes at the end of a pass that the script has begun by itself."""
        self.name = f"model {next(_NUMBERS)}"
        self._model = model
        self._world = world
        self._sync = True
        self._forwarded = False
        """A forward pass in training mode has come by since buffers were made equal."""

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        return self._model

    # ---------------------------------------------------------------- the exchange of gradients

    @abstractmethod
    def look(self) -> None:
        """
        Take up what has become of the parameters since: new ones, others in their place, thawed ones.

        Raises:
            MixedUseError: the processes have made different changes, or the strategy cannot follow them.
        """

    @abstractmethod
    def is_reached(self, graph: Graph) -> bool:
        """A pass will give gradients to parameters of the model."""

    @abstractmethod
    def before_backward(self, graph: Callable[[], Graph] | None, alone: Callable[[], bool]) -> None:
        """
        A pass of `Accelerator.backward` begins.

        Args:
            graph: asks what it will reach; None where that is not all that matters.
            alone: asks whether it reaches one prepared model.
        """

    @abstractmethod
    def after_backward(self) -> None:
        """The pass is over: gradients are those of all processes from now on, if they are exchanged."""

    @abstractmethod
    def failed_backward(self, goes_on: bool) -> None:
        """The pass has ended in an error; with `goes_on` the script may go on."""

    def no_sync(self) -> AbstractContextManager[None]:
        """Gradients add up on each process; the next backward pass outside of the body exchanges their sum."""
        return self.syncing(False)

    @contextmanager
    def syncing(self, sync: bool) -> Iterator[None]:
        """Whether backward passes in the body exchange gradients."""
        before, self._sync = self._sync, sync
        try:
            yield
        finally:
            self._sync = before

    # ---------------------------------------------------------------- gradients, and what steps them

    def collected(self, parameters: Iterable[torch.Tensor] | None = None) -> Iterable[torch.Tensor]:
        """
        Gradients of this process alone that are in no `.grad` of the model: they wait for the next exchange.

        Args:
            parameters: of which ones; of all when None.
        """
        return ()

    def forget(self, parameters: Iterable[torch.Tensor] | None = None) -> None:
        """Drop those; of some parameters, or of all."""

    def wire(self, optimizer: torch.optim.Optimizer) -> None:
        """Let an optimizer step the parameters as they are laid over the processes."""

    # ---------------------------------------------------------------- state

    def full_state(self) -> dict[str, Any]:
        """The state dict of the plain model. All processes call it; some strategies give it to rank 0 alone."""
        state: dict[str, Any] = self._model.state_dict()
        return state

    # ---------------------------------------------------------------- buffers

    def _equal(self) -> None:
        """All processes are here, with the same gradients. Buffers follow rank 0, as they do in DDP."""
        if self._forwarded or self._model.training or any(part.training for part in self._model.modules()):
            self._equalise_buffers()
        for call in self.when_equal:
            call(self)

    def _equalise_buffers(self) -> None:
        self._forwarded = False
        if self._broadcasts_buffers:
            equalise(self._world, self._buffers, together=True)

    def another_is_equal(self) -> None:
        """Another model has exchanged gradients. Buffers of one that is frozen for that time follow rank 0, too."""
        if self._model.training and not self._trains:
            self._equalise_buffers()

    @property
    def _broadcasts_buffers(self) -> bool:
        return True

    @property
    @abstractmethod
    def _buffers(self) -> list[torch.Tensor]:
        """The buffers of the model, each once."""

    @property
    @abstractmethod
    def _trains(self) -> bool:
        """Some parameter of the model collects gradients."""

    # ---------------------------------------------------------------- the end

    def outlive(self) -> None:
        """Live as long as the model, although nothing of it holds the engine."""

    @abstractmethod
    def release(self) -> None:
        """Take hooks off the parameters."""


def weakly_heard(engine: Any) -> Callable[[torch.Tensor], None]:
    """
    The hook of an engine. It does not hold the engine, and so not the model.

    Torch never frees the hooks that a parameter has after its gradients have been added: a model that one of them held
    would live until the process has ended, with its class and all that the script's globals hold. A log file among
    them that the script never closes would not be written to the end.
    """
    reference = weakref.ref(engine)

    def hear(parameter: torch.Tensor) -> None:
        one = reference()
        if one is not None:
            one._hear(parameter)

    return hear
