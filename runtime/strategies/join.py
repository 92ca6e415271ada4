"""
Uneven inputs: processes that have run out of data take part in the exchanges of the others with zeros.

Every exchange begins with a call of the roll: who still trains, and which model. When nobody does any more, everything
that has been trained becomes that of a process that trained to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..collectives.gather import overwrite_tensors
from ..collectives.world import World
from .data_parallel import DataParallelEngine


class Roll:
    """
    Calls the roll of the processes that train some models.

    Args:
        world: the processes.
        engines: of the models, in the same order on all processes.
    """

    def __init__(self, world: World, engines: list[DataParallelEngine]) -> None:
        self._world = world
        self._engines = engines
        self._trained_last = 0

    def exchange(self, engine: DataParallelEngine) -> None:
        """Average the gradients of a model over all processes; those that have no data count as zero."""
        self._call(self._engines.index(engine))
        engine.average()

    def _call(self, number: int) -> int:
        """Which engine is trained; -1 when no process does."""
        self._world.note("join_uneven_inputs")
        rows = self._world.gather_numbers([number])
        training = [rank for rank, (other,) in enumerate(rows) if other >= 0]
        if not training:
            return -1
        self._trained_last = training[0]
        return rows[training[0]][0]

    def follow(self) -> int | None:
        """
        Take part until nobody trains any more.

        Returns:
            A process that trained to the end; None when all ended together.
        """
        followed = False
        while (number := self._call(-1)) >= 0:
            followed = True
            engine = self._engines[number]
            kept = [(parameter, parameter.grad) for parameter in engine.model.parameters()]
            for parameter, _ in kept:
                parameter.grad = None
            engine.average()
            for parameter, gradient in kept:
                parameter.grad = gradient
        self._world.note("join_uneven_inputs: the end")
        uneven = any(row[0] for row in self._world.gather_numbers([int(followed)]))
        return self._trained_last if uneven else None


@contextmanager
def joined(world: World, engines: list[DataParallelEngine], afterwards: Callable[[int], None]) -> Iterator[None]:
    """
    Train with inputs that may end earlier on some processes.

    Args:
        world: the processes.
        engines: of the models.
        afterwards: called on all processes with the number of one that trained to the end, when the inputs were uneven.
    """
    roll = Roll(world, engines)
    for engine in engines:
        engine.roll = roll.exchange
    try:
        yield
        last = roll.follow()
    finally:
        for engine in engines:
            engine.roll = None
    if last is None:
        return
    for engine in engines:
        overwrite_tensors(world, [t.detach() for t in (*engine.model.parameters(), *engine.model.buffers())], last)
    afterwards(last)
