"""What is known about the batches that are on their way through the script."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch

from ..device.kinds import address_of
from ..device.placement import map_tree
from ..process.call_log import frames
from ..torch_internals import graph_clock
from .shares import EVEN, History, ShardPlan, Shares

_LATEST = 8
"""So many batches of a pass, and so many passes that were left, are remembered one by one."""
_KEPT = 64
"""When so many batches have gone out it is looked which of them are still held; again when there are twice as many."""


class HandedOut:
    """A batch that a pass has handed out."""

    __slots__ = (
        "by_hand",
        "clock",
        "collects",
        "event",
        "frame",
        "loader",
        "looked",
        "plan",
        "position",
        "shares",
        "tensors",
        "trains",
    )

    def __init__(self, one: Pass, event: int, evaluates: bool) -> None:
        self.event = event
        """The number of this event among all hand-outs, beginnings and backward passes."""
        self.clock = graph_clock()
        """What was computed afterwards has this number in its graph, or a higher one."""
        self.position = one.position
        self.shares = one.shares
        self.plan = one.plan
        self.loader = one.loader
        self.by_hand = one.by_hand
        self.frame = next(map(_number_of, frames()), None) if one.by_hand else None
        """Of the function of the script that had it cut."""
        self.looked = 0
        """How often it was looked for in the graph of a loss of another loop."""
        self.collects = torch.is_grad_enabled()
        """It was not read under `no_grad`."""
        self.trains = self.collects and not evaluates
        """Neither were all models in evaluation mode."""
        self.tensors: list[tuple[weakref.ref[Any], int]] = []
        """Its tensors and arrays, and where each of them is."""

    def remember(self, batch: Any) -> None:
        """Know its tensors and arrays again."""
        found: list[tuple[weakref.ref[Any], int]] = []

        def note(leaf: Any) -> None:
            if isinstance(leaf, torch.Tensor) and leaf.numel():
                found.append((weakref.ref(leaf), memory_of(leaf)))
            elif isinstance(leaf, np.ndarray) and leaf.size:  # a tensor over it has the same memory
                found.append((weakref.ref(leaf), leaf.ctypes.data))

        map_tree(note, batch)
        self.tensors = found

    def alive(self) -> bool:
        """Somebody still holds a tensor of it: the script, or the graph of a loss."""
        return any(reference() is not None for reference, _ in self.tensors)

    def is_in_hand(self) -> bool:
        """A batch that the script has had cut may be in use: somebody holds it, or the function that had it cut still
        runs. That may hold a copy, or what it has gathered in place of it."""
        return self.alive() or any(_number_of(frame) == self.frame for frame in frames())

    def memories(self) -> set[int]:
        """Where those of its tensors are that somebody still holds."""
        return {memory for reference, memory in self.tensors if reference() is not None}


def _number_of(frame: FrameType) -> tuple[int, CodeType]:
    """What tells a frame from others while it runs: the frame itself would keep all of its variables. The number alone
    is given to the next one when a function has returned."""
    return id(frame), frame.f_code


class Pass:
    """One pass over a loader: where it is, and how the rows of its batches lie on the processes."""

    __slots__ = (
        "_last",
        "began",
        "beside",
        "by_hand",
        "exhausted",
        "handed",
        "history",
        "iterator",
        "length",
        "loader",
        "plan",
        "position",
        "records",
        "shares",
        "times",
        "unspent",
    )

    def __init__(self, length: int | None, iterator: Callable[[], object] = lambda: True) -> None:
        self.iterator = iterator
        """Answers None once the loop has let go of its iterator."""
        self.length = length
        """How many batches this process will see; None where that is not certain beforehand."""
        self.by_hand = False
        """There is no loader: the script makes its batches, and has them cut."""
        self.plan: ShardPlan = EVEN
        """What is certain about its shards beforehand."""
        self.began = 0
        """The number of the event."""
        self.position = 0
        """How many batches have been handed out."""
        self._last: bool | None = None
        self.exhausted = False
        """The loop has asked for more and got none."""
        self.shares: Shares | None = None
        """The `Shares` of the batch in hand; None on one process."""
        self.history = History()
        """The `Shares` of all batches so far."""
        self.times: dict[Any, set[int]] = {}
        """How many values a row there were, for each kind of tensors that was gathered, where that was certain."""
        self.records: set[int] = set()
        """Which lists with tensors in them have held one thing for each row, where that was certain."""
        self.loader: Callable[[], object] = lambda: None
        """The loader, if it still exists."""
        self.beside: list[Pass] = []
        """Passes that hand out batches in turn with this one (zipped loaders)."""
        self.handed: deque[HandedOut] = deque(maxlen=_LATEST)
        """The latest batches; none on one process."""
        self.unspent = False
        """No backward pass has followed the batch in hand, which was handed out in training."""

    def gave(self, tensors: Iterable[torch.Tensor]) -> bool:
        """One of the tensors is a tensor of the batch in hand, or a view of one."""
        known = self.handed[-1].memories() if self.handed else set()
        return bool(known) and any(memory_of(one) in known for one in tensors)

    def advance(self, shares: Shares | None, last: bool | None) -> None:
        """
        Another batch goes out.

        Args:
            shares: the rows of each process.
            last: whether another one follows; None where nobody has looked yet.
        """
        self.position += 1
        self._last = last
        if shares is not None:
            self.shares = shares
            self.history.add(shares)

    @property
    def ended(self) -> bool:
        """The batch in hand is the last one. Found out when it is asked: nothing is fetched ahead for nobody."""
        if self._last is None and self.length is not None:
            self._last = self.position == self.length
        elif self._last is None:
            batches: Any = None if self.exhausted else self.iterator()
            self._last = self.exhausted or (hasattr(batches, "is_last") and batches.is_last())
        return bool(self._last)

    @property
    def runs(self) -> bool:
        """Some loop may still ask it for batches."""
        return not self.exhausted and self.iterator() is not None

    def remaining(self) -> int | None:
        """Batches that are still to come, the one in hand included; None when not known."""
        if self.length is None:
            return 1 if self.ended else None
        return max(self.length - self.position + 1, 1)


def memory_of(tensor: torch.Tensor) -> int:
    """
    Where the elements of a tensor are: views of it have the same answer.

    Where that cannot be known (a sparse tensor, a device whose memory has no addresses) it is a number of this tensor
    alone, so that no other one is taken for it.
    """
    return address_of(tensor) or -id(tensor)


def _nobody(_loader: Any, _batch: Any) -> None:
    """Does not watch."""


class Progress:
    """The passes of one accelerator: those that run (nested or side by side), and the latest one."""

    def __init__(self) -> None:
        self.latest: Pass | None = None
        self.length_asked = False
        """The script has asked a prepared loader for its length."""
        self.gradient_state: Any = None
        """What scripts read of all this, and of windows, under the names of Accelerate."""
        self.evaluates: Callable[[], bool] = lambda: False
        """All models are in evaluation mode."""
        self.watch: Callable[[Any, Any], None] = _nobody
        """Hears of every batch that may be trained on, of which no row is a duplicate: its loader, and the batch."""
        self.clear()

    def clear(self) -> None:
        """Forget all passes."""
        self.latest = None
        self.asks = False
        """A loader has begun whose batches may be shared unevenly, with the global batch kept."""
        self.unspent = False
        """A pass is over that has handed out batches in training with no backward pass after them."""
        self.unknown_rows = 0
        """How often rows were gathered that fit no batch."""
        self.backward_event = 0
        """The number of the latest backward pass among all events."""
        self._events = 0
        self._running: list[Pass] = []
        self._left: deque[Pass] = deque(maxlen=_LATEST)
        self._held: list[HandedOut] = []
        self._look_at = _KEPT

    def __deepcopy__(self, memo: dict[int, Any]) -> Progress:
        """A copy of a loader belongs to the same accelerator."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Passes stay in the process that runs them."""
        gone: dict[str, Any] = {
            "latest": None,
            "gradient_state": None,
            "_running": [],
            "_left": deque(maxlen=_LATEST),
            "_held": [],
        }
        return {name: value for name, value in {**vars(self), **gone}.items() if name not in ("evaluates", "watch")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.evaluates, self.watch = lambda: False, _nobody
        self.__dict__.update(state)

    def event(self) -> int:
        """The number of an event that happens now."""
        self._events += 1
        return self._events

    def began(self, one: Pass) -> None:
        """A pass begins."""
        one.began = self.event()
        self.asks = self.asks or not one.plan.even

    def handed_out(self, one: Pass, batch: Any) -> None:
        """A pass has handed out a batch, and there are several processes."""
        made = HandedOut(one, self.event(), self.evaluates())
        made.remember(batch)
        one.handed.append(made)
        if made.trains and one.shares is not None and one.shares.exact and all(one.shares.rows):
            self.watch(one.loader(), batch)
        if not one.plan.even:
            one.unspent = made.trains
        if self.asks:
            self._held.append(made)
            if len(self._held) >= self._look_at:
                self._held = [held for held in self._held if held.alive()]
                self._look_at = max(_KEPT, 2 * len(self._held))

    def moved(self, batch: Any) -> None:
        """The batch in hand is on another device now."""
        if self.latest is not None and self.latest.handed:
            self.latest.handed[-1].remember(batch)

    def held(self) -> list[HandedOut]:
        """Batches that somebody still holds, of all passes since some loader shares unevenly."""
        return [one for one in self._held if one.alive()]

    def held_since(self, event: int) -> Iterator[HandedOut]:
        """Those of them that went out after an event, the latest first."""
        later = takewhile(lambda one: one.event > event, reversed(self._held))
        return (one for one in later if one.alive())

    def noted_backward(self) -> None:
        """A backward pass begins: what is in hand has served."""
        self.backward_event = self.event()
        for one in (*self._running, *self._left):
            one.unspent = False

    def yielded(self, one: Pass) -> None:
        """`one` hands out a batch: it is the innermost pass now."""
        self.latest = one  # a loop inside its own may have ended since
        if self._running and self._running[-1] is one:
            return
        if one in self._running:
            for other in self._running[self._running.index(one) + 1 :]:
                if other.runs and other not in one.beside:
                    one.beside = [*(known for known in one.beside if known.runs), other]
                    other.beside = [*(known for known in other.beside if known.runs), one]
        self._forget_left()
        self._running = [*(other for other in self._running if other is not one), one]

    def _forget_left(self) -> None:
        """Passes whose loop has ended before they did run no more."""
        self._left.extend([one for one in self._running if not one.runs])
        self._running = [one for one in self._running if one.runs]

    def finished(self, one: Pass) -> None:
        """`one` has no more batches. It is still the latest until another pass hands one out."""
        one.exhausted = True
        self.unspent = self.unspent or one.unspent
        if not one.position:  # a pass without batches, too, is what rows in hand now come from
            self.latest = one
        self._running = [other for other in self._running if other is not one]

    def running(self) -> list[Pass]:
        """Passes that run, the innermost first."""
        return [one for one in reversed(self._running) if one.runs]

    def left(self) -> list[Pass]:
        """The latest passes whose loop was left before their end."""
        self._forget_left()
        return list(self._left)

    def innermost(self) -> Pass | None:
        """The pass that the batch in hand comes from; a loop over a loader before what is cut by hand in it."""
        running = self.running()
        return next((one for one in running if not one.by_hand), running[0] if running else None)

    def candidates(self) -> Iterable[Pass]:
        """Passes that rows in hand may come from, the likeliest first."""
        if self.latest is not None:
            yield self.latest
        for one in self.running():
            if one is not self.latest:
                yield one

    def in_hand(self) -> Shares | None:
        """The `Shares` of the batch of the innermost loop that runs; None outside of all loops, and on one process."""
        one = self.innermost()
        if one is None or (one.by_hand and not one.handed[-1].is_in_hand()):
            return None
        return one.shares
