"""What a verification says while it runs, on stderr: at a terminal a line that is drawn anew, else a line a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TextIO

from .run_processes import Run

_EVERY = 0.5
"""Seconds between two drawings."""
_LONGEST = 78
_STEP = b'{"e": "step"'


class RunProgress:
    """
    Told of runs while they go on.

    Args:
        stream: where to write.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._drawn = 0.0
        self._numbers: dict[int, int] = {}
        """By run: which one it is, counted from 1."""
        self.planned = 0
        """How many runs there are to be, as far as that is known."""
        self._read: dict[int, tuple[int, int]] = {}
        """By run: bytes of its trace that were looked at, and the optimizer steps in them."""

    def going(self, runs: Sequence[Run]) -> None:
        """Draw how far they are, now and then."""
        now = time.monotonic()
        if self._terminal and runs and now - self._drawn >= _EVERY:
            self._drawn = now
            text = "; ".join(f"{run.name}: {self._far(run)}" for run in runs)
            said = f"verify: {self._number(*runs)}: {text}, {runs[0].seconds:.0f} s"
            self._stream.write(f"\r\x1b[K{said[:_LONGEST]}")
            self._stream.flush()

    def over(self, run: Run) -> None:
        """Say that a run is over."""
        if self._terminal:
            self.finish()
        else:
            said = f"{run.name}: {self._steps(run)} steps in {run.seconds:.0f} s"
            self._stream.write(f"verify: {self._number(run)}: {said}\n")
        self._stream.flush()

    def _number(self, *runs: Run) -> str:
        """Which of all runs they are: ``run 3 of 4``."""
        for run in runs:
            self._numbers.setdefault(id(run), len(self._numbers) + 1)
        numbers = [self._numbers[id(run)] for run in runs]
        of = max(self.planned, len(self._numbers))
        return f"run{'s' if len(numbers) > 1 else ''} {' and '.join(map(str, numbers))} of {of}"

    def finish(self) -> None:
        """Take away what was drawn."""
        if self._terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _far(self, run: Run) -> str:
        """How far a run is: its Python starts, and imports torch, before the first step."""
        steps = self._steps(run)
        return f"{steps} steps" if steps else "starting"

    def _steps(self, run: Run) -> int:
        offset, steps = self._read.get(id(run), (0, 0))
        try:
            with run.processes[0].task.trace.open("rb") as stream:
                stream.seek(offset)
                new = stream.read()
        except OSError:
            return steps
        whole = new[: new.rfind(b"\n") + 1]
        self._read[id(run)] = offset + len(whole), steps + sum(line.startswith(_STEP) for line in whole.splitlines())
        return self._read[id(run)][1]
