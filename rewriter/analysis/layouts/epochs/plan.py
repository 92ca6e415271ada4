"""What makes the totals of one training loop whole: rows that are gathered for some, numbers reduced in others."""

from __future__ import annotations

from collections.abc import Callable

from ....facts.module import Gather
from ..epoch_totals import Total


class EpochPlan:
    """What makes the totals of one loop those of all processes."""

    def __init__(self, reduced: dict[Total, list[Gather]]) -> None:
        self.reduced = reduced
        """The reductions in each total."""
        self.gather: Gather | None = None
        self.gathered: list[Total] = []
        """The totals whose rows the gather joins."""

    def gather_for(self, totals: list[Total], gather: Callable[[list[Total]], Gather | None]) -> None:
        """Gather the rows of some totals, if that can be done."""
        self.gather = gather(totals) if totals else None
        self.gathered = totals if self.gather is not None else []

    def makes_whole(self, total: Total) -> bool:
        """Whether something is done for a total."""
        return total in self.gathered or bool(self.reduced.get(total))

    def leave(self, totals: list[Total]) -> list[Total]:
        """Leave some totals as they are, and what is gathered together with them."""
        left = dict.fromkeys(totals)
        if not left.keys().isdisjoint(self.gathered):
            left.update(dict.fromkeys(self.gathered))
            self.gather, self.gathered = None, []
        for total in left:
            self.reduced[total] = []
        return list(left)
