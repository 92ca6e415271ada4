"""What is known about the batches that are on their way through the script."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..device.placement import tensors_in
from .shares import Shares


class Pass:
    """One pass over a loader: where it is, and how the rows of its batches lie on the processes."""

    __slots__ = (
        "_in_hand",
        "beside",
        "ended",
        "exhausted",
        "history",
        "iterator",
        "length",
        "loader",
        "position",
        "shares",
    )

    def __init__(self, length: int | None, iterator: Callable[[], object] = lambda: True) -> None:
        self.iterator = iterator
        """Answers None once the loop has let go of its iterator."""
        self.length = length
        """How many batches this process will see; None when that is not known beforehand."""
        self.position = 0
        """How many batches have been handed out."""
        self.ended = False
        """The batch in hand is the last one."""
        self.exhausted = False
        """The loop has asked for more and got none."""
        self.shares: Shares | None = None
        """The shares of the batch in hand; None on one process."""
        self.history: list[Shares] = []
        """The shares of all batches so far."""
        self.loader: Callable[[], object] = lambda: None
        """The loader, if it still exists."""
        self.beside: list[Pass] = []
        """Passes that hand out batches in turn with this one (zipped loaders)."""
        self._in_hand: list[tuple[weakref.ref[torch.Tensor], int]] = []

    def remember(self, batch: Any) -> None:
        """Know the tensors of the batch in hand again."""
        self._in_hand = [(weakref.ref(one), _memory(one)) for one in tensors_in(batch) if one.numel()]

    def gave(self, tensors: Iterable[torch.Tensor]) -> bool:
        """One of the tensors is a tensor of the batch in hand, or a view of one."""
        known = {memory for reference, memory in self._in_hand if reference() is not None}
        return bool(known) and any(_memory(one) in known for one in tensors)

    def advance(self, shares: Shares | None, last: bool) -> None:
        """Another batch goes out."""
        self.position += 1
        self.ended = last or self.position == self.length
        if shares is not None:
            self.shares = shares
            self.history.append(shares)

    @property
    def runs(self) -> bool:
        """Some loop may still ask it for batches."""
        return not self.exhausted and self.iterator() is not None

    def remaining(self) -> int | None:
        """Batches that are still to come, the one in hand included; None when not known."""
        if self.length is None:
            return 1 if self.ended else None
        return max(self.length - self.position + 1, 1)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


class Progress:
    """The passes of one accelerator: those that run (nested or side by side), and the latest one."""

    def __init__(self) -> None:
        self.latest: Pass | None = None
        self.looks_ahead = False
        """Loaders of unknown length fetch one batch ahead, so that the last one is known as such."""
        self.length_asked = False
        """The script has asked a prepared loader for its length."""
        self.gradient_state: Any = None
        """What scripts read of all this, and of windows, under the names of Accelerate."""
        self._running: list[Pass] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> Progress:
        """A copy of a loader belongs to the same accelerator."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Passes stay in the process that runs them."""
        return {**vars(self), "latest": None, "gradient_state": None, "_running": []}

    def yielded(self, one: Pass) -> None:
        """`one` hands out a batch: it is the innermost pass now."""
        if self._running and self._running[-1] is one:
            return
        self.latest = one
        if one in self._running:
            for other in self._running[self._running.index(one) + 1 :]:
                if other.runs and other not in one.beside:
                    one.beside.append(other)
                    other.beside.append(one)
        self._running = [*(other for other in self._running if other is not one and other.runs), one]

    def finished(self, one: Pass) -> None:
        """`one` has no more batches. It is still the latest until another pass hands one out."""
        one.exhausted = True
        if not one.position:  # a pass without batches, too, is what rows in hand now come from
            self.latest = one
        self._running = [other for other in self._running if other is not one]

    def running(self) -> list[Pass]:
        """Passes that run, the innermost first."""
        return [one for one in reversed(self._running) if one.runs]

    def innermost(self) -> Pass | None:
        """The pass that the batch in hand comes from; None outside of all loops."""
        for one in reversed(self._running):
            if one.runs:
                return one
        return None

    def candidates(self) -> Iterable[Pass]:
        """Passes that rows in hand may come from, the likeliest first."""
        if self.latest is not None:
            yield self.latest
        for one in self.running():
            if one is not self.latest:
                yield one

    def weight(self, rank: int) -> float:
        """What a mean over this process's rows of the batch in hand counts."""
        one = self.innermost() or self.latest
        if one is None or one.exhausted or one.shares is None:
            return 1.0
        return one.shares.weights[rank]

    def clear(self) -> None:
        """Forget all passes."""
        self.latest = None
        self._running = []
