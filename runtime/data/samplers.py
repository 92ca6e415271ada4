"""Index samplers that sit under a prepared loader: they draw what the script's sampler draws, and keep their shard."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from ..collectives.world import World
from ..errors import MixedUseError
from .order import in_order_of_rank_0
from .shares import RoundRules, Shares, count_rounds, rounds, split_one, uniform


class Sharded:
    """
    Yields the indices of this process, and leaves the `Shares` of every step in `shares`, also of a
    last one without it.

    Args:
        source: the script's batch sampler, or its sampler where the loader does no batching.
        world: the processes.
        rules: how rounds are made; None when every script batch is split.
        generators: explicit generators that the script's samplers use.
        batched: `source` yields lists of indices.
        agreed: the source draws the same on all processes by itself.
    """

    def __init__(
        self,
        source: Any,
        world: World,
        rules: RoundRules | None,
        generators: list[torch.Generator],
        batched: bool,
        agreed: bool = False,
    ) -> None:
        self._source = source
        self._world = world
        self._agreed = agreed
        self.rules = rules
        """How rounds are made; may be changed between passes."""
        self._generators = generators
        self._batched = batched
        self.shares: deque[Shares] = deque()

    def __len__(self) -> int:
        count = len(self._source)
        return count if self.rules is None else count_rounds(count, self.rules, self._world.rank)

    def __iter__(self) -> Iterator[Any]:
        self.shares = deque()  # each pass has its own; the loader takes it right after it asked for a pass
        return self._draw(self.shares)

    def _draw(self, shares: deque[Shares]) -> Iterator[Any]:
        source = self._source
        if not self._agreed:
            source = in_order_of_rank_0(self._world, source, source, self._generators)
        rank, size = self._world.rank, self._world.size
        lists: Iterable[list[Any]] = source if self._batched else ([index] for index in source)
        steps = (split_one(list(batch), size) for batch in lists) if self.rules is None else rounds(lists, self.rules)
        for parts, share in steps:
            shares.append(share)
            if parts[rank]:
                yield parts[rank] if self._batched else parts[rank][0]


class WholeItems:
    """Draws everything on every process, in the order of rank 0: for batches that are cut after they are read."""

    def __init__(self, source: Any, world: World, generators: list[torch.Generator]) -> None:
        self._source = source
        self._world = world
        self._generators = generators
        self.shares: deque[Shares] = deque()

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[Any]:
        return iter(in_order_of_rank_0(self._world, self._source, self._source, self._generators))


class KeptDistributedSampler:
    """
    The script's own DistributedSampler: its indices stay as they are, only the `Shares` are worked out.

    Args:
        source: what the loader draws from.
        sampler: the DistributedSampler in it.
        world: the processes.
        batch_size: rows per batch; None where the loader does no batching.

    Raises:
        MixedUseError: the sampler was made for another number of processes.
    """

    def __init__(self, source: Any, sampler: DistributedSampler[Any], world: World, batch_size: int | None) -> None:
        if sampler.num_replicas != world.size:
            raise MixedUseError(
                f"the loader has a DistributedSampler for {sampler.num_replicas} processes, but there are "
                f"{world.size}. Remove the sampler: prepare shards the data itself."
            )
        self._source = source
        self._sampler = sampler
        self._size = world.size
        self._batch_size = batch_size or 1
        self.shares: deque[Shares] = deque()

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Iterator[Any]:
        self.shares = deque()
        return self._draw(self.shares)

    def _draw(self, shares: deque[Shares]) -> Iterator[Any]:
        per_rank = self._sampler.num_samples
        real = min(len(self._sampler.dataset), self._sampler.total_size)  # type: ignore[arg-type]
        own = [len(range(rank, real, self._size)) for rank in range(self._size)]
        for step, item in enumerate(self._source):
            start = step * self._batch_size
            rows = min(self._batch_size, per_rank - start)
            valid = tuple(max(0, min(rows, count - start)) for count in own)
            share = uniform(rows, self._size)
            shares.append(Shares(share.rows, valid, share.weights))
            yield item


class Skipping:
    """Draws what another sampler draws, without what comes first."""

    def __init__(self, source: Any, count: int) -> None:
        self._source = source
        self._count = count

    def __len__(self) -> int:
        return max(len(self._source) - self._count, 0)

    def __iter__(self) -> Rest:
        drawn = iter(self._source)  # now: the source makes its list of `Shares` when it is asked for a pass
        return Rest(drawn, getattr(self._source, "shares", None), self._count)


class Rest:
    """
    What an iterator draws, without what comes first.

    Args:
        drawn: the iterator.
        shares: of what it draws; what is left out is taken from them, too.
        count: how much is left out.
    """

    def __init__(self, drawn: Iterator[Any], shares: deque[Shares] | None, count: int) -> None:
        self._drawn = drawn
        self._shares = shares
        self._count = count

    def __iter__(self) -> Rest:
        return self

    def __next__(self) -> Any:
        self.leave_out()
        return next(self._drawn)

    def leave_out(self) -> None:
        """Draw what comes first now."""
        while self._count:
            self._count -= 1
            next(self._drawn, None)
            if self._shares:
                self._shares.popleft()


class PeekableSampler:
    """Draws what another sampler draws, and can tell of a pass whether there is more to come."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __iter__(self) -> Drawn:
        return Drawn(iter(self._source))


class Drawn:
    """
    What an iterator draws. It is asked for one item more where somebody wants to know whether there is one.

    Args:
        items: the iterator.
    """

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self._ahead: deque[Any] = deque()
        self._given = 0

    def __iter__(self) -> Drawn:
        return self

    def __next__(self) -> Any:
        item = self._ahead.popleft() if self._ahead else next(self._items)
        self._given += 1
        return item

    def more(self) -> bool:
        """There is another item to be drawn."""
        if not self._ahead:
            self._ahead.extend(islice(self._items, 1))
        return bool(self._ahead)

    def more_than(self, count: int) -> bool:
        """There are more than so many, those included that have been drawn (workers read ahead)."""
        return self._given > count or self.more()

    def leave_out(self) -> None:
        """Draw what comes first now, where something is to be left out."""
        if isinstance(self._items, Rest):
            self._items.leave_out()
