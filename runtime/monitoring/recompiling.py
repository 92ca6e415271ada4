"""
How often torch_xla compiles, and what runs on the CPU because it lacks an operation.

A training loop has few graphs: after its second step it compiles nothing new, but for a batch of another shape. One
that compiles again and again spends its time with that.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from .. import torch_spmd
from . import script

log = logging.getLogger(__name__)

_SETTLED = 2
"""After so many steps an optimizer has all of its state, and its graphs are known."""
_LOOKED_AT = 40
"""So many steps are looked at together."""
_MANY = 10
"""So many of them that compile are reported: an evaluation, or the last batch of an epoch, makes fewer."""


class Recompiling:
    """
    Runs the steps of the optimizers of one accelerator, and counts those before which something was compiled.

    Args:
        optimizers: asks how many there are.
    """

    def __init__(self, optimizers: Callable[[], int]) -> None:
        self.steps = 0
        self.late = 0
        """Steps that compiled something, after the first ones of each optimizer."""
        self._optimizers = optimizers
        self._latest: deque[bool] = deque(maxlen=_LOOKED_AT)
        self._count = torch_spmd.compilations()
        self._say_at = 0
        self._looked = False

    def stepped(self) -> None:
        """An optimizer has stepped: what was asked for is run, and it is looked whether it was known."""
        torch_spmd.sync()
        self.steps += 1
        if self.steps <= _SETTLED * self._optimizers():
            self._count = torch_spmd.compilations()
            return
        if not self._looked:
            self._looked = True
            self._look_for_missing()
        count = torch_spmd.compilations()
        self._latest.append(count != self._count)
        if count == self._count:
            return
        self._count = count
        self.late += 1
        if self.steps >= self._say_at and sum(self._latest) >= _MANY:
            self._say_at = 4 * self.steps
            self._say()

    def _say(self) -> None:
        line = script.line()
        log.warning(
            "torch_xla compiled anew in %d of the latest %d optimizer steps%s, %d graphs so far: training waits each "
            "time. As a rule, batches have different shapes. Pad them to few lengths: Accelerator(kwargs_handlers="
            "[ShapeBuckets(lengths=(128, 256))]).",
            sum(self._latest),
            len(self._latest),
            f" (at {line})" if line else "",
            self._count,
        )

    def _look_for_missing(self) -> None:
        missing = torch_spmd.missing_operations()
        if missing:
            names = ", ".join(f"{name.removeprefix('aten::')} ({count} times)" for name, count in missing.items())
            log.warning(
                "torch_xla lacks operations, which are run on the CPU: %s. Each cuts the graph of a step in two, and "
                "copies to the CPU and back. Compute the same with others, or before the batch is on the device.",
                names,
            )
