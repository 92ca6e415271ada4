"""How fast a loop goes through a loader, and how much of that time it waits for data."""

from __future__ import annotations

from typing import NamedTuple


class Pace(NamedTuple):
    """
    Since it was asked for the last time, on this process. What happens between two passes does not count.

    `pace._asdict()` is what `accelerator.log` takes.
    """

    batches: int
    """How many have been handed out, and are done with."""
    seconds_per_batch: float
    """From one to the next: waiting for it and working with it. 0.0 where there was none."""
    data_wait: float
    """The part of that time in which the loop waited for its data, from 0 to 1. Near 0, more workers bring nothing."""


class Clock:
    """Counts the seconds of the passes over one loader."""

    def __init__(self) -> None:
        self._batches = 0
        self._waited = 0.0
        self._worked = 0.0

    def count(self, waited: float, worked: float) -> None:
        """The loop is done with a batch: so many seconds it has waited for it, and worked with it."""
        self._batches += 1
        self._waited += waited
        self._worked += worked

    def read(self) -> Pace:
        """What it shows; it begins anew."""
        count, seconds = self._batches, self._waited + self._worked
        pace = Pace(count, seconds / count if count else 0.0, self._waited / seconds if seconds else 0.0)
        self._batches, self._waited, self._worked = 0, 0.0, 0.0
        return pace
