"""
Accumulation windows: which backward passes belong to one optimizer step.

A loss is divided by the length that a window should have, as scripts do it by hand, also in a short one at the end of
the data. With exact windows a short one is divided by its own length; with counted items, by their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from ..errors import MixedUseError


class RunningData(Protocol):
    """What a window must know of the loop over the data that it is in."""

    @property
    def ended(self) -> bool:
        """The batch in hand is the last one. To ask may take reading another one."""

    def remaining(self) -> int | None:
        """Batches still to come, the one in hand included; None when not known."""


@dataclass
class _Count:
    """How far one window is."""

    entered: int = 0
    """Entries so far, the current one included."""
    divisor: int = 1
    """By how much the losses of this window were divided so far."""
    items: int = 0
    """Items of this process so far, where losses are sums over counted items."""
    factor: float = 0.0
    """By what the sums were multiplied so far; 0 before the first one."""


class Windows:
    """
    Counts the entries into `accumulate`, separately for every set of models.

    Args:
        steps: batches per optimizer step.
        running: the pass over the data that the batch in hand comes from; None outside of all loops.
        with_data: the end of the data ends a window.
        exact: a short window is divided by its own length.
    """

    def __init__(
        self, steps: int, running: Callable[[], RunningData | None], with_data: bool = True, exact: bool = False
    ) -> None:
        self.steps = steps
        self.exact = exact
        self.sync = True
        """Gradients are exchanged, and optimizers step."""
        self.inside = False
        self.divisor = steps
        """What a loss is divided by."""
        self.backwards_in_window = False
        self.backwards_in_entry = False
        self._collected_in_window = False
        """The accelerator has run a backward pass, or the script has asked for a step: gradients are there."""
        self._collected_in_entry = False
        self._entry = 0
        self._zeroed: int | None = None
        """In which entry of this window gradients were dropped first."""
        self.running = running
        self.with_data = with_data
        self.entries = 0
        """Batches entered since the beginning, or the end of the data."""
        self._data: RunningData | None = None
        self._counts: dict[tuple[int, ...], _Count] = {}
        self._first = 0
        self._current: tuple[_Count, Callable[[], Iterable[torch.Tensor]]] | None = None

    def enter(self, key: tuple[int, ...], gradients: Callable[[], Iterable[torch.Tensor]]) -> None:
        """
        Begin a micro-batch.

        Args:
            key: the models that accumulate.
            gradients: what they have collected; asked for only when it must be scaled anew.
        """
        count = self._counts.setdefault(key, _Count(self._first, self.steps))
        data = self.running()
        if self.steps == 1 and data is not self._data:
            self.entries = 0
        self._data = data
        # every batch is a window of its own where they are of one batch: then nobody has to know the last one
        at_end = self.steps > 1 and data is not None and self.with_data and data.ended
        self.entries = 0 if at_end else self.entries + 1
        if count.entered == 0:
            remaining = data.remaining() if data is not None and self.exact else None
            count.divisor = self.steps if remaining is None else min(self.steps, remaining)
            count.items, count.factor = 0, 0.0
            self.backwards_in_window = self._collected_in_window = False
            self._zeroed = None
        count.entered += 1
        self._entry = count.entered
        self.backwards_in_entry = self._collected_in_entry = False
        self.inside = True
        self._current = count, gradients
        self.sync = count.entered >= self.steps or at_end
        self.divisor = count.divisor
        if self.sync:
            if self.exact and count.divisor != count.entered:
                _scale(gradients(), count.divisor / count.entered)
                self.divisor = count.entered
            count.entered = 0

    def factor_of_items(self, items: int, total: Callable[[int], float]) -> float:
        """
        What a loss is multiplied by that is a sum over items.

        Args:
            items: of this process, in this micro-batch.
            total: makes the items of this process those of all, and divides by the number of processes; called once
                for each window, on all processes.
        """
        if not self.inside or self._current is None:
            return 1 / max(total(items), 1e-9)
        count, gradients = self._current
        if count.factor and self.sync and self.backwards_in_entry:
            raise MixedUseError("backward(num_items=...) was called twice for the batch that completes a window.")
        count.items += items
        if not self.sync:
            count.factor = count.factor or 1 / (max(items, 1) * self.steps)
            return count.factor
        factor = 1 / max(total(count.items), 1e-9)
        if count.factor and self.backwards_in_window:
            _scale(gradients(), factor / count.factor)
        count.factor = factor
        return factor

    def leave(self) -> None:
        """End a micro-batch. Outside of `accumulate` everything is exchanged and every step is made."""
        self.inside = False
        self._current = None
        self.divisor = self.steps

    def noted_backward(self) -> None:
        """A gradient was added. Outside of `accumulate` it belongs to no window: the next step is made."""
        if not self.inside:
            self.sync = True
        self.backwards_in_window = self.backwards_in_entry = True
        self._collected_in_window = self._collected_in_entry = True

    def asked_to_step(self) -> None:
        """The script steps an optimizer: it has collected gradients, maybe in a backward pass of its own."""
        if self.inside:
            self._collected_in_window = self._collected_in_entry = True

    def asked_to_zero(self) -> bool:
        """Whether `zero_grad` may do so: it would not throw away what the window still needs."""
        if not self.inside:
            return self.sync  # between the batches of a window, too
        if self._collected_in_window:
            return self.sync and self._collected_in_entry
        # before the first backward pass; one of the script's own is not known here, it comes after its first zero_grad
        self._zeroed = self._zeroed or self._entry
        return self._zeroed == self._entry

    def reset(self, entries: int = 0) -> None:
        """Forget all windows. The next ones begin as if so many batches had been entered."""
        self._counts.clear()
        self.entries, self._first = entries, entries % self.steps
        self.sync, self.inside, self.divisor = True, False, self.steps


def _scale(gradients: Iterable[torch.Tensor], factor: float) -> None:
    with torch.no_grad():
        for gradient in gradients:
            gradient.mul_(factor)
