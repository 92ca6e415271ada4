"""The weights after every step of every optimizer, as checksums."""

from __future__ import annotations

import gc
from typing import Any
from zlib import crc32

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import checksums
from ..monitor import kept_equal
from .events import MOST_EVENTS, EventLog

_MOST_NUMBERS = 2_000_000
"""So many checksums of single weights are recorded; then one for all weights of an optimizer."""


class StepSums:
    """
    Records the weights after every step.

    Args:
        log: of this process.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._named: set[tuple[int, str]] = set()
        self._numbers = 0

    def install(self) -> None:
        """Look at every step from now on."""
        register_optimizer_step_post_hook(self._after)

    def _after(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if torch.compiler.is_compiling() or not self._log.mine:
            return
        stepped = [one for group in optimizer.param_groups for one in group["params"]]
        self._log.moves += 1
        for part, pairs in checksums.copies(kept_equal(stepped)).items():
            self._record(optimizer, part, *map(list, zip(*pairs, strict=True)))

    def _record(self, optimizer: Optimizer, part: str, weights: list[torch.Tensor], own: list[torch.Tensor]) -> None:
        """
        Of those weights that other processes have as well.

        Args:
            optimizer: that has stepped.
            part: which part of the weights it is, where they are sharded in several replicas; else "".
            weights: as the model has them.
            own: what this process has of them.
        """
        at, loops = self._log.line(), self._log.loops()
        shapes = crc32(part.encode() + "".join(f"{tuple(one.shape)}{one.dtype}" for one in own).encode())
        turn = self._log.turn(f"{at} {shapes}", MOST_EVENTS)
        if turn is None:
            return
        if (id(optimizer), part) not in self._named:
            self._named.add((id(optimizer), part))
            names = names_of(weights)
            self._log.write("weights", of=shapes, names=names, kind=type(optimizer).__name__)
        sums = checksums.sums(own)
        self._numbers += len(sums)
        short = [f"{one & 0xFFFFFFFFFFFFFFFF:x}" for one in sums]
        if self._numbers > _MOST_NUMBERS:
            short = [f"{crc32(' '.join(short).encode()):x}"]
        self._log.write("step", at=at, of=shapes, n=turn, sums=short, loops=loops[:1])


def names_of(weights: list[torch.Tensor]) -> list[str]:
    """Their names in the model that holds the most of them; numbers where there is none."""
    wanted = {id(one) for one in weights}
    best: dict[int, str] = {}
    for thing in gc.get_objects():
        if issubclass(type(thing), nn.Module) and "_parameters" in thing.__dict__:
            found = {id(one): name for name, one in thing.named_parameters() if id(one) in wanted}
            if len(found) > len(best):
                best = found
    return [best.get(id(one), f"parameter {index}") for index, one in enumerate(weights)]
