"""
Training by torch_xla: one process, and all devices of the machine as one mesh.

A batch lies on the devices in runs of rows. Weights are whole on each of them, or, sharded, in pieces. What is computed
is what one device would compute, so that nothing is averaged, gathered or weighted here: the compiler adds the
exchanges between devices. What is left to do is to say how tensors lie, and to run a graph before it grows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .. import torch_spmd
from ..collectives.world import World
from ..config.settings import Settings
from ..device.placement import move_module, tensors_in
from ..device.precision import Precision
from ..errors import NotAvailableYet
from .graph import Graph
from .strategy import TrainingEngine

log = logging.getLogger(__name__)

Norm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm
_BEFORE = "_torchlift_running_var"
"""Where a layer has its variance of before a forward pass."""


class SpmdEngine(TrainingEngine):
    """
    One model on all devices.

    Args:
        model: on the device.
        world: of this process, alone.
        precision: of its forward pass.
    """

    def __init__(self, model: nn.Module, world: World, precision: Precision) -> None:
        super().__init__(model, world, precision)
        layers = [one for one in model.modules() if isinstance(one, Norm) and one.running_var is not None]
        self._hooks = [one.register_forward_pre_hook(_keep_variance) for one in layers]
        self._hooks += [one.register_forward_hook(_correct_variance) for one in layers]

    def call(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The forward pass, with the rows of what it is given on all devices: batches made by hand, too."""
        for tensor in tensors_in([args, kwargs]):
            if torch_spmd.is_laid_out(tensor):
                torch_spmd.cut_rows(tensor)
        return super().call(call, args, kwargs)

    def look(self) -> None:
        """Nothing is held of the parameters."""

    def is_reached(self, graph: Graph) -> bool:
        """Not asked for: nothing is exchanged."""
        return True

    def before_backward(self, graph: Callable[[], Graph] | None, alone: Callable[[], bool]) -> None:
        """There is nothing to arm."""

    def after_backward(self) -> None:
        """In a window of accumulation, what was computed so far is run: the graph of the next batch begins anew."""
        if not self._sync:
            torch_spmd.sync()

    def failed_backward(self, goes_on: bool) -> None:
        """There is nothing to take back."""

    @property
    def _buffers(self) -> list[torch.Tensor]:
        return list(self._model.buffers())

    @property
    def _trains(self) -> bool:
        return any(one.requires_grad for one in self._model.parameters())

    def release(self) -> None:
        """Batch normalization is torch_xla's again."""
        for hook in self._hooks:
            hook.remove()


def lay_out(model: nn.Module, world: World, precision: Precision, sharded: bool) -> SpmdEngine:
    """
    Move a model to the devices. It stays the same object, and so do its parameters.

    Args:
        model: anywhere.
        world: of this process, alone.
        precision: of its forward pass.
        sharded: each device keeps a piece of each weight; of those that cannot be cut evenly, all.

    Raises:
        DeviceError: it has weights without data, or weights that something else refers to weakly.
    """
    move_module(model, world.device)
    cut = [torch_spmd.lay_weight(one, sharded) for one in model.parameters()]
    for buffer in model.buffers():
        torch_spmd.lay_weight(buffer, False)
    if sharded:
        log.info(
            "%d of %d weights of the %s are sharded over %d devices",
            sum(cut),
            len(cut),
            type(model).__name__,
            torch_spmd.device_count(),
        )
    torch_spmd.sync()
    return SpmdEngine(model, world, precision)


def _keep_variance(module: Norm, _given: Any) -> None:
    if module.training and module.running_var is not None:
        module.__dict__[_BEFORE] = module.running_var.clone()


def _correct_variance(module: Norm, given: tuple[Any, ...], _result: Any) -> None:
    """torch_xla adds the variance of the batch to the running one; torch, that of the population (n / (n - 1))."""
    before = module.__dict__.pop(_BEFORE, None)
    if before is None or module.running_var is None or not given:
        return
    counted = given[0].numel() // given[0].shape[1]
    if counted < 2:
        return
    momentum = module.momentum
    if momentum is None:
        momentum = 1 / max(int(module.num_batches_tracked or 1), 1)
    with torch.no_grad():
        found = module.running_var
        corrected = found + (found - (1 - momentum) * before) / (counted - 1)
        # equal: nothing was added; by `data`, because the backward pass has kept the variance, which it does not use
        found.data.copy_(torch.where(found == before, found, corrected))


def check_settings(settings: Settings) -> None:
    """
    Look at what an accelerator was asked for.

    Raises:
        NotAvailableYet: what torch_xla has another way for, or none.
    """
    if settings.dynamo.wanted:
        raise NotAvailableYet("torch.compile by torch_xla", "Leave dynamo_backend out: every step is compiled anyway.")
    if settings.mesh is not None and settings.mesh.total_size > 1:
        raise NotAvailableYet(
            "parallelism_config by torch_xla", "Leave it out. With fsdp_plugin, weights are sharded over all devices."
        )
