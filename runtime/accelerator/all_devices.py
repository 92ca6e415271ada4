"""What an accelerator does where one process drives all devices (torch_xla)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from .. import torch_spmd
from ..collectives.world import World
from ..config.settings import Settings
from ..device.precision import Precision
from ..monitoring.recompiling import Recompiling
from ..strategies.extend import extend
from ..strategies.xla import SpmdEngine, check_settings, lay_out


class AllDevices:
    """
    Lays models over the devices, and runs what optimizers have asked for.

    Args:
        settings: of the accelerator.
        world: of this process, alone.
        precision: of forward passes.
        optimizers: asks how many were prepared.
    """

    def __init__(self, settings: Settings, world: World, precision: Precision, optimizers: Callable[[], int]) -> None:
        check_settings(settings)
        self._settings = settings
        self._world = world
        self._precision = precision
        self._recompiling = Recompiling(optimizers)
        self.after_step: Callable[[], None] = self._recompiling.stepped
        """Called when an optimizer has stepped."""
        self._seeded = False

    def model(self, model: nn.Module, trained: bool) -> SpmdEngine:
        """The engine of a model, which stays the object that it is, and is on all devices from now on."""
        engine = lay_out(model, self._world, self._precision, self._settings.sharding is not None and trained)
        if not self._seeded:
            self._seeded = True
            torch_spmd.seed(torch.initial_seed())
        if not extend(model, engine):
            engine.outlive()
        return engine
