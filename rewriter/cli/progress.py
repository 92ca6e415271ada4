"""A progress bar for runs over many programs: on a terminal only, and removed at the end."""

from __future__ import annotations

import time
from typing import TextIO

_FEW = 20
"""Runs over fewer programs than this end before anybody could read a bar."""
_EVERY = 0.1
"""Seconds between two drawings."""
_WIDTH = 30


class ProgressBar:
    """Called with the number of finished programs and the number of all; draws a bar from time to time."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.terminal = stream.isatty()
        self._drawn = time.monotonic()
        self._shows = False

    def __call__(self, done: int, total: int) -> None:
        """Show how many of all programs are done; remove the bar if all are."""
        if not self.terminal or total < _FEW:
            return
        now = time.monotonic()
        if done >= total:
            if self._shows:
                self.stream.write("\r\x1b[K")
                self.stream.flush()
            return
        if now - self._drawn < _EVERY:
            return
        self._drawn, self._shows = now, True
        full = _WIDTH * done // total
        self.stream.write(f"\r\x1b[K  {'━' * full}{'─' * (_WIDTH - full)} {done} of {total} programs")
        self.stream.flush()
