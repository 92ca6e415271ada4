"""Local SGD: every process trains by itself for some steps, then the weights are averaged."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

import torch
from torch import nn

from ..errors import MixedUseError


class Averages(Protocol):
    """What is needed of an accelerator."""

    @property
    def use_distributed(self) -> bool:
        """There is more than one process."""

    def no_sync(self, model: Any = None) -> AbstractContextManager[None]:
        """A context in which gradients stay on their process."""

    def reduce(self, tensor: Any, reduction: str = "sum") -> Any:
        """Join tensors of all processes."""


class LocalSGD(AbstractContextManager["LocalSGD"]):
    """
    In the body, gradients stay on their process. Every `local_sgd_steps` calls of `step`, and at the end, the weights
    become the mean over all processes.

        with LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=8) as local_sgd:
            for batch in loader:
                ...
                optimizer.step()
                local_sgd.step()

    Args:
        accelerator: the accelerator.
        model: prepared.
        local_sgd_steps: optimizer steps between two averages.
        enabled: False trains as usual.

    Raises:
        MixedUseError: `local_sgd_steps` is below 1.
    """

    def __init__(self, accelerator: Averages, model: nn.Module, local_sgd_steps: int, enabled: bool = True) -> None:
        if local_sgd_steps < 1:
            raise MixedUseError(f"local_sgd_steps is {local_sgd_steps}; it must be 1 or more.")
        self.enabled = enabled and accelerator.use_distributed
        self.num_steps = 0
        self.local_sgd_steps = local_sgd_steps
        self._accelerator = accelerator
        self._model = model
        self._stack = ExitStack()

    def __enter__(self) -> LocalSGD:
        if self.enabled:
            self._stack.enter_context(self._accelerator.no_sync(self._model))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            if self.enabled and kind is None:  # after an exception the others may never come
                self._average()

    def step(self) -> None:
        """One optimizer step has been made."""
        self.num_steps += 1
        if self.enabled and self.num_steps % self.local_sgd_steps == 0:
            self._average()

    def _average(self) -> None:
        parameters = [p for p in self._model.parameters() if p.requires_grad]
        means = self._accelerator.reduce([p.detach() for p in parameters], "mean")
        with torch.no_grad():
            for parameter, mean in zip(parameters, means, strict=True):
                parameter.copy_(mean)
