"""The iterator of one pass over a prepared loader: it tells the accelerator about every batch that goes out."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from time import perf_counter
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from ..device.kinds import kind_of
from .dispatch import Dispatched
from .iterable import Tagged, cut_rows, rows_of
from .order import LentState
from .plan import certain_length, plan_of
from .progress import Pass
from .samplers import Drawn
from .shares import Shares, split_rows, uniform
from .transfer import sent

KEY = "_torchlift_share"
"""Where a prepared loader keeps what it knows."""
_nobody: Callable[[], object] = lambda: None  # noqa: E731
_UNSEEN = object()
"""Nobody has looked whether there is another batch."""


class Batches:
    """The iterator of one pass: tells the accelerator's progress about every batch it hands out."""

    def __init__(self, batches: Any, loader: Any, share: Any, lent: LentState | None) -> None:
        self._batches = batches
        self._share = share
        self._lent = lent
        self._progress = share.options.progress
        self._begin(loader)

    def _begin(self, loader: Any) -> None:
        share = self._share
        self._shares: deque[Shares] = deque() if share.indices is None else share.indices.shares
        self._pass = Pass(certain_length(loader, share), weakref.ref(self))
        self._pass.loader = weakref.ref(loader)
        self._pass.plan = plan_of(loader, share)
        self._progress.began(self._pass)
        self._clock = share.epochs.clock
        self._waited: float | None = None
        """How long the loop has waited for the batch in hand; None where there is none."""
        self._given = 0.0
        """When it went out."""
        share.epochs.current = self._pass
        self._told = not share.options.world.alone
        read = isinstance(loader.dataset, IterableDataset) or (self._told and share.options.dispatch)
        # an iterator of torchdata that goes on has read some of them before
        self._drop = max(share.skip - getattr(self._batches, "_num_yielded", 0), 0) if read else 0
        self._reads = 0
        """Batches that have been read, and not left out."""
        self.sends = _can_send_ahead(loader, share.options)
        """Batches are on the device when they go out; the copy of the next one has begun by then."""
        self._state: Any = None
        self._next: tuple[Any, Shares | None] | object | None = self._look_ahead() if self.sends else _UNSEEN
        self._simple = not self._told and not self.sends and not self._drop and share.indices is None

    def __iter__(self) -> Batches:
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":
            raise AttributeError(name)
        return getattr(self._batches, name)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Workers that persist begin another pass; what the one before left out, because it went on, is in this one."""
        self._share = loader.__dict__[KEY]
        self._pass.iterator = _nobody
        self._batches = loader._torchlift_reset(self._batches, first_iter)
        self._begin(loader)

    def leave_out(self) -> None:
        """Draw, or read from a stream, what is to be skipped, now."""
        drawn = getattr(self._batches, "_sampler_iter", None)
        if isinstance(drawn, Drawn):
            drawn.leave_out()
        try:
            while self._drop:
                self._drop -= 1
                self._read()
                self._reads -= 1
        except StopIteration:
            return

    def __next__(self) -> Any:
        asked = perf_counter()
        if self._waited is not None:
            self._clock.count(self._waited, asked - self._given)
            self._waited = None
        batch = self._step() if self._simple and self._next is _UNSEEN else self._advance()
        self._given = perf_counter()
        self._waited = self._given - asked
        return batch

    def _advance(self) -> Any:
        found: Any = self._next
        if found is _UNSEEN:
            found = self._fetch()
        elif self.sends and found is not None:
            self._next = self._look_ahead()
        else:
            self._next, self._state = found and _UNSEEN, None
        if found is None:
            self._state = None
            self._end()
            raise StopIteration
        batch, shares = found
        if self.sends:
            batch = batch()
        self._progress.yielded(self._pass)
        self._pass.advance(shares, self._next is None if self.sends else None)
        if self._told:
            self._progress.handed_out(self._pass, batch)
        return batch

    def is_last(self) -> bool:
        """
        Whether the batch in hand is the last one. Lengths are not trusted: it is looked whether there is another one.

        Where indices tell that, nothing is read. A stream is read one batch ahead, and so only when this is asked.
        """
        if self._next is _UNSEEN:
            drawn = getattr(self._batches, "_sampler_iter", None)
            if isinstance(drawn, Drawn):
                return not drawn.more_than(self._reads)
            if isinstance(self._batches, Dispatched):
                return self._batches.last
            self._next = self._look_ahead()
        return self._next is None

    def _end(self) -> None:
        if self._told:  # what others had in a last step that this process had no rows in
            for shares in self._shares:
                self._pass.history.add(shares)
        self._progress.finished(self._pass)
        self._share.epochs.end()

    def _step(self) -> Any:
        """The next batch where there is nothing to share: one process is to cost nothing."""
        one = self._pass
        try:
            batch = next(self._batches)
        except StopIteration:
            self._end()
            raise
        if not one.position or self._progress.latest is not one:
            self._progress.yielded(one)
        self._reads += 1
        one.advance(None, None)
        return batch

    def _fetch(self) -> tuple[Any, Shares | None] | None:
        if self._drop:
            self.leave_out()
        try:
            batch = self._read()
            while isinstance(batch, Tagged) and not batch.shares.rows[self._share.options.world.rank]:
                self._shares.append(batch.shares)
                batch = self._read()
        except StopIteration:
            return None
        if isinstance(batch, Tagged):
            return batch.batch, batch.shares
        if self._share.cuts:
            return self._cut(batch)
        return batch, self._shares.popleft() if self._shares else None

    def _look_ahead(self) -> tuple[Any, Shares | None] | None:
        if hasattr(self._batches, "state_dict"):
            self._state = deepcopy(self._batches.state_dict())
        found = self._fetch()
        if found is None or not self.sends:
            return found
        options = self._share.options
        return sent(found[0], options.device, options.non_blocking), found[1]

    def state_dict(self) -> Any:
        """Where an iterator of torchdata is: at the batch in hand, not at the one that was fetched ahead."""
        return self._batches.state_dict() if self._state is None else self._state

    def _read(self) -> Any:
        with nullcontext() if self._lent is None else self._lent.lent():
            batch = next(self._batches)
        self._reads += 1
        return batch

    def _cut(self, batch: Any) -> tuple[Any, Shares]:
        world = self._share.options.world
        rows = rows_of(batch)
        if not rows:
            return batch, uniform(1, world.size)
        runs, shares = split_rows(rows, world.size)
        return cut_rows(batch, *runs[world.rank]), shares


def _can_send_ahead(loader: Any, options: Any) -> bool:
    """
    To fetch one batch more changes nothing: workers read it, and so no random numbers are drawn here in between; and
    nothing of the script's is between this iterator and its loop.
    """
    beside = options.device is not None and kind_of(options.device).copies_beside
    if not beside or not loader.num_workers or (options.dispatch and not options.world.alone):
        return False
    plain: bool = loader._torchlift_class.__iter__ is DataLoader.__iter__
    return plain
