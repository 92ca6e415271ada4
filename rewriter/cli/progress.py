"""A word of progress within a second, for whatever takes longer: on a terminal that can remove it again."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import threading
    from types import TracebackType

_PATIENCE = 0.7
"""Seconds before anything is shown: most runs have ended by then."""
_EVERY = 0.2
"""Seconds between two drawings."""
_WIDTH = 30


class ProgressBar:
    """
    Says how far a run is; a thread draws, because one program alone can take long.

    Called with the number of finished programs and the number of all.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._done = self._total = 0
        self._start = time.monotonic()
        self._ended: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ProgressBar:
        """Start to watch the clock."""
        if self.stream.isatty() and os.environ.get("TERM") != "dumb":
            import threading  # for terminals alone: hooks have none, and count each millisecond

            self._ended = threading.Event()
            self._thread = threading.Thread(target=self._draw, args=(self._ended,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop, and remove what was drawn."""
        if self._ended is not None and self._thread is not None:
            self._ended.set()
            self._thread.join()

    def __call__(self, done: int, total: int) -> None:
        """Take note of how many of all programs are done."""
        self._done, self._total = done, total

    def line(self) -> str:
        """What is shown."""
        seconds = f"{time.monotonic() - self._start:.0f} s"
        if not self._total:
            return f"looking for scripts, {seconds}"
        if self._total == 1:
            return f"analysing, {seconds}"
        full = _WIDTH * self._done // self._total
        bar = "#" * full + "-" * (_WIDTH - full)
        return f"{bar} {self._done} of {self._total} programs, {seconds}"

    def _draw(self, ended: threading.Event) -> None:
        if ended.wait(_PATIENCE):
            return
        while True:
            self.stream.write(f"\r\x1b[K  {self.line()}")
            self.stream.flush()
            if ended.wait(_EVERY):
                break
        self.stream.write("\r\x1b[K")
        self.stream.flush()
