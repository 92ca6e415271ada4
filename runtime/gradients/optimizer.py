"""
Prepared optimizers: the script's own object, whose `step` and `zero_grad` mind the window and the scaler.

Both are replaced on the instance. An optimizer's state dict, pickle and deep copy do not hold what is set on the
instance, its class and its hooks stay its own, and a scheduler may have put its own counter there before: it is kept.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from .window import Windows

_KEY = "_torchlift_gate"


class Gate:
    """
    Comes before the steps of one optimizer.

    Args:
        optimizer: the script's.
        windows: tell whether this is a time to step.
        scaler: for fp16; None otherwise.
        agree: calls a closure, and makes the loss that it returns that of all processes; None on one process.
        before: called on all processes before a step is made, or left out because of an overflow: the one place for it.
        zeroed: called when gradients have been dropped.
        after: called when a step has been made.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        windows: Windows,
        scaler: torch.amp.GradScaler | None,
        agree: Callable[[Any], Any] | None = None,
        before: Callable[[Gate], None] | None = None,
        zeroed: Callable[[Gate], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.made = 0
        """How many steps were really made."""
        self.unscaled = False
        """The gradients of this step are free of the scale already."""
        self.stepped = False
        """A step was made, or left out, with gradients of the scale as it is."""
        self.made_in_loop = False
        """The last step was made inside of a loop over a prepared loader."""
        self.had_scheduler = hasattr(optimizer.step, "_wrapped_by_lr_sched")
        """A scheduler had been made for the optimizer before it was prepared."""
        self._windows = windows
        self._scaler = scaler
        self._step = optimizer.step
        self._zero_grad = optimizer.zero_grad
        self._from_scaler = False
        self._agree = agree
        self._before = before
        self._zeroed = zeroed
        self._after = after

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """One step, if the window is complete and nothing has overflowed."""
        if self._from_scaler:  # the scaler found the gradients finite and calls back
            self._note(skipped=False)
            self._count()
            return self._step(*args, **kwargs)
        self._windows.asked_to_step()
        if not self._windows.sync:
            return None
        if self._before is not None:
            self._before(self)
        if self._scaler is None:
            self._count()
            done = self._step(*map(self._agreed, args), **{name: self._agreed(one) for name, one in kwargs.items()})
            if self._after is not None:
                self._after()
            return done
        return self._scaled_step(self._scaler, args, kwargs)

    def _agreed(self, value: Any) -> Any:
        """An optimizer that asks for the loss (a line search does) decides by it: all processes must hear the same."""
        agree = self._agree
        if agree is None or not callable(value):
            return value
        return lambda: agree(value)

    @property
    def skipped(self) -> bool:
        """The last step was left out because gradients had overflowed. Tests of scripts set it on the optimizer."""
        return bool(self.optimizer.__dict__.get("_is_overflow"))

    def _note(self, skipped: bool) -> None:
        self.optimizer.__dict__["step_was_skipped"] = self.optimizer.__dict__["_is_overflow"] = skipped

    def _count(self) -> None:
        self.made += 1
        self.made_in_loop = self._windows.running() is not None

    def _scaled_step(self, scaler: torch.amp.GradScaler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._note(skipped=True)
        self._from_scaler = True
        try:
            result = scaler.step(self.optimizer, *args, **kwargs)
        finally:
            self._from_scaler = False
        self.stepped = True
        return result

    def unscale(self) -> None:
        """Take the scale out of the gradients, once a step."""
        if self._scaler is not None and not self.unscaled:
            self._scaler.unscale_(self.optimizer)
            self.unscaled = True

    def renew(self) -> None:
        """The scale is another one now: the next gradients are not free of it."""
        self.unscaled = self.stepped = False

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Drop the gradients, unless a window is still collecting them."""
        if self._windows.asked_to_zero():
            self._zero_grad(*args, **kwargs)
            if self._zeroed is not None:
                self._zeroed(self)


def prepare_optimizer(
    optimizer: Optimizer,
    windows: Windows,
    scaler: torch.amp.GradScaler | None,
    agree: Callable[[Any], Any] | None = None,
    before: Callable[[Gate], None] | None = None,
    zeroed: Callable[[Gate], None] | None = None,
    after: Callable[[], None] | None = None,
) -> Gate:
    """Put a gate before `step` and `zero_grad`; the optimizer stays the same object."""
    gate = Gate(optimizer, windows, scaler, agree, before, zeroed, after)

    def step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        return gate.step(*args, **kwargs)

    def zero_grad(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        gate.zero_grad(*args, **kwargs)

    if hasattr(gate._step, "_wrapped_by_lr_sched"):  # a scheduler counts steps already
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.__dict__["step"] = types.MethodType(step, optimizer)
    optimizer.__dict__["zero_grad"] = types.MethodType(zero_grad, optimizer)
    optimizer.__dict__[_KEY] = gate
    optimizer.__dict__["optimizer"] = optimizer  # scripts that know a wrapper look for what is in it
    optimizer.__dict__["_is_accelerate_prepared"] = True
    gate._note(skipped=False)
    for name in ("train", "eval"):  # what optimizers without a schedule need, scripts may call on any
        if not hasattr(optimizer, name):
            optimizer.__dict__[name] = _nothing
    return gate


def _nothing() -> None:
    """Nothing is to be done."""


def gate_of(optimizer: object) -> Gate | None:
    """The gate of a prepared optimizer; None for any other object."""
    gate = getattr(optimizer, "__dict__", {}).get(_KEY)
    return gate if isinstance(gate, Gate) else None


def update_scale(gates: Iterable[Gate], scaler: torch.amp.GradScaler | None) -> None:
    """
    Let the scaler judge its scale, once for all optimizers that have stepped, or had their gradients unscaled, with it.

    It comes before the next loss is scaled, not after each step: gradients of one pass belong to several optimizers.
    """
    if scaler is not None:
        used = [gate for gate in gates if gate.stepped or gate.unscaled]
        if used:
            scaler.update()
        for gate in used:
            gate.renew()


def state_to_device(optimizer: Optimizer) -> None:
    """Move what an optimizer has remembered to the devices of its parameters."""
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() and value.device != parameter.device:
                state[key] = value.to(parameter.device)
