"""
Which batch a loss was computed from, and so how much the loss of a process counts.

Where a batch of the script is shared unevenly, the mean over the rows of one process counts by their number. A loss
does not say which batch it is of. As a rule there is one loop with one batch in hand. Where there are several, the
order of events decides, and what the graph of the loss has kept; where these do not, an error does, in the first such
step.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple

import torch

from ..device.placement import tensors_in
from ..errors import UnclearBatchError, WrongKindError
from ..torch_internals import number_in_graph, saved_by
from .progress import HandedOut, Pass, Progress, memory_of
from .shares import ShardPlan, Shares

_LOOKS = 3
"""So often it is looked whether a batch that seems to be aside is in the loss: a walk through its graph."""
CURRENT = "current"
"""The loss is of the batch of the loop that runs."""


class _Candidate(NamedTuple):
    one: Pass
    batch: HandedOut


def shares_of_loss(progress: Progress, loss: torch.Tensor, batch: Any, sums: bool) -> Shares | None:
    """
    The `Shares` of the batch that a loss was computed from; None where it is of no batch of a prepared loader.

    Args:
        progress: the passes.
        loss: on this process; its graph is still there.
        batch: what the script says: the batch or a tensor of it, None for other data, CURRENT where it says nothing.
        sums: the loss is a sum over rows: it matters only whether this process has any.

    Raises:
        UnclearBatchError: it cannot be told; on all processes alike.
        WrongKindError: `batch` is not what a prepared loader has handed out.
    """
    if batch is None:
        return None
    if not isinstance(batch, str):
        return _of_batch(progress, batch)
    if not progress.asks:
        return _shares_that_are_even(progress)
    if batch != CURRENT:
        raise WrongKindError(f'backward(batch={batch!r}): give a batch as the loader yielded it, None, or "{CURRENT}".')
    try:
        return _BatchOfLoss(progress, loss, sums).shares()
    except UnclearBatchError:
        # What only garbage still holds looks held until it is collected, which each process does at a time of its own:
        # an error of one alone would let the others wait in their next exchange.
        gc.collect()
    return _BatchOfLoss(progress, loss, sums).shares()


def _shares_that_are_even(progress: Progress) -> Shares | None:
    """With batches per process only the last round of a pass can have weights, and nothing is asked."""
    one = progress.innermost() or progress.latest
    return None if one is None or one.exhausted else one.shares


def _of_batch(progress: Progress, batch: Any) -> Shares | None:
    wanted = {memory_of(one) for one in tensors_in(batch) if one.numel()}
    held = progress.held() if progress.asks else [latest for one in progress.candidates() for latest in one.handed]
    found = {one.shares for one in held if wanted & one.memories()}
    if not found:
        if not progress.asks:  # of a batch before the latest ones, or of no prepared loader: nothing is asked
            return None
        raise WrongKindError(
            "backward(batch=...) was given something that no prepared loader has yielded. Give the batch, or a tensor "
            "of it, as the loader yielded it (before it was changed or copied), or None for a loss of other data."
        )
    if len(found) > 1:
        raise _unclear("the argument `batch` holds tensors of several batches")
    return found.pop()


class _BatchOfLoss:
    """
    Looks for the batch of one loss.

    Args:
        progress: the passes.
        loss: the loss.
        sums: it is a sum over rows.
    """

    def __init__(self, progress: Progress, loss: torch.Tensor, sums: bool) -> None:
        self._progress = progress
        self._loss = loss
        self._sums = sums
        number = number_in_graph(loss)
        self._computed = inf if number is None else number
        self._kept: set[int] | None = None

    def shares(self) -> Shares | None:
        """The answer."""
        found = sorted(self._in_hand(), key=lambda one: one.batch.event, reverse=True)
        # a script may train a model in evaluation mode, on purpose
        self._served = "trains" if any(one.batch.trains for one in found) else "collects"
        training = [one for one in found if self._serves(one.batch)]
        if not training:
            return self._by_graph(found)
        first, *others = training
        if first.one.by_hand:
            first = self._by_hand(first)
        others += self._left_since(first)
        for other in others:
            if not self._agree(first, other) and not self._aside(first, other):
                raise _unclear("the script holds batches of two loaders", first.batch, other.batch)
        for batch in self._progress.held_since(first.batch.event):  # of loops that have run to their end since
            if not self._agree(first, _Candidate(first.one, batch)) and self._in_graph(batch):
                raise _unclear("the loss contains batches of two loaders", first.batch, batch)
        if not (first.one.by_hand or self._certain(first.batch.plan)):
            earlier = list(self._earlier(first))
            if any(batch.alive() for batch in earlier):
                raise _unclear("the script holds several batches of a loader", first.batch)
            if earlier and not first.batch.alive() and not self._in_graph(first.batch):  # it has made copies of them
                raise _unclear("several batches of a loader went out since the last backward pass", first.batch)
        return first.batch.shares

    def _by_hand(self, latest: _Candidate) -> _Candidate:
        """Of the batches that the script has had cut, the one in the loss. It matters only where shards differ."""
        held = [batch for batch in self._progress.held() if batch.by_hand and batch.clock <= self._computed]
        if all(batch.shares == latest.batch.shares for batch in held):
            return latest
        found = [batch for batch in held if self._in_graph(batch)]
        if len({batch.shares for batch in found}) != 1:
            raise UnclearBatchError(
                "backward: it is not clear which batch this loss was computed from: the script has cut batches with "
                "different numbers of rows on the processes (shard_batch). Each loss counts by the rows of its own "
                "batch. Say which one it is: accelerator.backward(loss, batch=x), with x as shard_batch gave it; one "
                "call for each batch's part of the loss."
            )
        return _Candidate(latest.one, found[-1])

    def _serves(self, batch: HandedOut) -> bool:
        """It was handed out for training."""
        return bool(getattr(batch, self._served))

    def _certain(self, plan: ShardPlan) -> bool:
        return plan.full if self._sums else plan.even

    def _agree(self, one: _Candidate, other: _Candidate) -> bool:
        """Whichever batch the loss is of, its weight is the same; now, and in all steps to come."""
        mine, its = one.batch, other.batch
        if self._certain(mine.plan) and self._certain(its.plan):
            return True
        return mine.plan.key is not None and mine.plan.key == its.plan.key and mine.position == its.position

    def _in_hand(self) -> Iterator[_Candidate]:
        """Of every loop that runs, the last batch that went out before the loss was computed."""
        for one in self._progress.running():
            batch = self._before_loss(one)
            if batch is not None:
                yield _Candidate(one, batch)

    def _before_loss(self, one: Pass) -> HandedOut | None:
        before = [batch for batch in one.handed if batch.clock <= self._computed]
        if not before and len(one.handed) < one.position and not self._certain(one.plan):
            raise _unclear("the loader has yielded many batches since the loss was computed", one.handed[-1])
        return before[-1] if before else None

    def _left_since(self, first: _Candidate) -> Iterator[_Candidate]:
        """Loops that were left with a batch that may be in the loss beside the one of the loop that runs."""
        for one in self._progress.left():
            batch = self._before_loss(one) if one.handed else None
            if batch is None or not self._serves(batch):
                continue
            if batch.event > first.batch.event or (batch.event > self._progress.backward_event and batch.alive()):
                yield _Candidate(one, batch)

    def _aside(self, first: _Candidate, other: _Candidate) -> bool:
        """
        One loop has begun after the other batch went out, and the loss holds nothing of that.

        So it is with a loop in a step of another loop, and with a batch that a script has looked at before it trains.
        """
        if first.one.began < other.batch.event:
            return False
        other.batch.looked += 1
        return other.batch.looked > _LOOKS or not self._in_graph(other.batch)

    def _earlier(self, first: _Candidate) -> Iterator[HandedOut]:
        """Batches of the same loop for which there was no backward pass."""
        for batch in first.one.handed:
            since = self._progress.backward_event < batch.event < first.batch.event
            if since and self._serves(batch):
                yield batch

    def _by_graph(self, evaluating: list[_Candidate]) -> Shares | None:
        """No loop runs that trains."""
        found = {held.shares for held in self._progress.held() if self._in_graph(held)}
        if len(found) == 1:
            return found.pop()
        if found:
            raise _unclear("the loss contains several batches")
        if any(not self._certain(one.batch.plan) for one in evaluating):
            raise _unclear("the batch in hand was read without gradients", evaluating[0].batch)
        if self._progress.unspent or any(one.unspent for one in self._progress.left()):
            raise _unclear("no loop over a loader is running")
        return None

    def _in_graph(self, batch: HandedOut) -> bool:
        """The graph of the loss has kept a tensor of a batch."""
        if self._kept is None:
            self._kept = {memory_of(one) for one in _kept_by(self._loss)}
        return bool(self._kept & batch.memories())


def _kept_by(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """Tensors that the graph of a loss has kept."""
    waiting, seen = [loss.grad_fn], {None}
    while waiting:
        node = waiting.pop()
        if node in seen or node is None:
            continue
        seen.add(node)  # type: ignore[arg-type]
        yield from saved_by(node)
        waiting.extend([one for one, _ in node.next_functions])


def _unclear(why: str, *batches: HandedOut) -> UnclearBatchError:
    data = [f"over a {type(getattr(one.loader(), 'dataset', None)).__name__}" for one in batches]
    where = f" ({' and '.join(data)})" if data else ""
    return UnclearBatchError(
        f"backward: it is not clear which batch this loss was computed from: {why}{where}. With "
        "split_batches=True the processes can have different numbers of rows of a batch, and each loss counts by the "
        "rows of its own batch. There are three ways out. (1) Say which batch it is: accelerator.backward(loss, "
        "batch=inputs), with a tensor as the loader yielded it; one call for each loader's part of the loss, and "
        "batch=None for a loss of other data. (2) Make all shards equal: drop_last=True, and batch sizes that are "
        "multiples of the number of processes. (3) Use Accelerator(split_batches=False): every process then has "
        "batches of its own, and all losses count alike."
    )
