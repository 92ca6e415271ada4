"""
Prepared schedulers: the script's own object, whose `step` counts what the script means by it.

Called once for every step of the optimizer, a schedule is counted in batches of the script, as Accelerate documents it:
with batches per process every step of the optimizer consumes N of them, and the schedule moves on by N; with the global
batch kept, by one. Called once an epoch, it moves on by one. A scheduler that watches a metric is given the mean over
all processes, and moves by one. Nothing moves when the optimizer has left out its step, or past the end of a schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..classes import Front, in_front
from .optimizer import Gate
from .window import Windows


@dataclass(frozen=True)
class Counting:
    """What a scheduler must know of the job."""

    windows: Windows
    """Tell whether this is a time to step."""
    per_step: Callable[[], int]
    """Batches of the script in the round that the last step of the optimizer was made from."""
    agree: Callable[[float], float]
    """A metric of this process, made that of all."""
    coupled: bool
    """Follow the optimizer; False makes every call one tick."""


class Ticks:
    """
    How far a scheduler moves at a call of its `step`.

    Args:
        counting: of the accelerator.
        gates: of the optimizers that the scheduler follows.
        by_one: its horizon was worked out from the lengths of prepared loaders, so that a step is a step.
    """

    def __init__(self, counting: Counting, gates: list[Gate], by_one: bool) -> None:
        self._counting = counting
        self._gates = gates
        self._by_one = by_one
        self._made = self._steps()

    def _steps(self) -> int:
        return max((gate.made for gate in self._gates), default=0)

    def _per_epoch(self, made: int) -> bool:
        """More than one step since the last call; or one, in a loop that has ended since."""
        if self._counting.windows.inside:
            return False
        left = any(gate.made_in_loop for gate in self._gates) and self._counting.windows.running() is None
        return made > 1 or (made == 1 and left)

    def step(self, scheduler: LRScheduler, step: Callable[..., None], args: Any, kwargs: Any) -> None:
        """Call the scheduler's own `step` as often as it is due."""
        counting = self._counting
        if isinstance(scheduler, ReduceLROnPlateau):
            if counting.coupled and counting.windows.inside and not counting.windows.sync:
                return
            if "metrics" in kwargs:
                kwargs = {**kwargs, "metrics": counting.agree(float(kwargs["metrics"]))}
            else:
                args = (counting.agree(float(args[0])), *args[1:])
            step(*args, **kwargs)
        elif not counting.coupled:
            step(*args, **kwargs)
        else:
            self._follow(scheduler, step, args, kwargs)

    def _follow(self, scheduler: LRScheduler, step: Callable[..., None], args: Any, kwargs: Any) -> None:
        made, self._made = self._steps() - self._made, self._steps()
        if self._per_epoch(made):
            ticks = 1
        elif not self._counting.windows.sync or any(gate.skipped for gate in self._gates):
            return
        else:
            ticks = 1 if self._by_one else self._counting.per_step()
        total = getattr(scheduler, "total_steps", None)
        for _ in range(ticks):
            if total is None or scheduler._step_count <= total:
                step(*args, **kwargs)


class _Itself:
    """`scheduler.scheduler` is the scheduler, for code that was written for a wrapper."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else instance


class _PreparedScheduler(Front):
    """What a prepared scheduler does differently. Comes before the script's class in the order of lookup."""

    _torchlift_ticks: Ticks
    _is_accelerate_prepared = True

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Move on as far as is due."""
        self._torchlift_ticks.step(self, super().step, args, kwargs)  # type: ignore[arg-type,misc]


def prepare_scheduler(scheduler: LRScheduler, ticks: Ticks) -> None:
    """Extend the class of this instance, so that `step` counts. The scheduler stays the same object."""
    more = {} if hasattr(scheduler, "scheduler") else {"scheduler": _Itself()}
    scheduler.__class__ = in_front(_PreparedScheduler, type(scheduler), _torchlift_ticks=ticks, **more)


def made_after_its_optimizer(scheduler: LRScheduler, gate: Gate | None) -> bool:
    """The optimizer had been prepared when the scheduler was made; False also when that cannot be told."""
    if gate is None or gate.had_scheduler:
        return False
    return hasattr(scheduler.optimizer.step, "_wrapped_by_lr_sched")


def is_prepared(scheduler: object) -> bool:
    """Made by `prepare_scheduler`."""
    return isinstance(scheduler, _PreparedScheduler)
