"""What the script prints: every line, and whether a batch was in hand when it was printed."""

from __future__ import annotations

import io
import logging
import re
import sys
import warnings
from typing import Any

from .recorder import Recorder

_MOST_LINES = 20_000
_LONGEST = 2_000
_BREAKS = re.compile(r"\r\n|\n|\r")


class Recorded(io.TextIOWrapper):
    """A standard stream that also tells the recorder what is written."""

    def __init__(self, descriptor: int, stream: int, recorder: Recorder) -> None:
        super().__init__(
            io.FileIO(descriptor, "w", closefd=False), encoding="utf-8", errors="backslashreplace", write_through=True
        )
        self._stream = stream
        self._recorder = recorder
        self._rest = ""
        self._lines = 0
        self.quiet = False
        """Warnings are the library's, not the script's."""

    def write(self, text: str) -> int:
        """Write, and record the lines that have become complete."""
        if not self.quiet and self._recorder.mine and self._lines < _MOST_LINES:
            *complete, rest = _BREAKS.split(self._rest + text)
            self._rest = rest[:_LONGEST]
            for line in complete:
                self._line(line)
        return super().write(text)

    def finish(self) -> None:
        """Record a last line that no break has ended."""
        if self._rest:
            self._line(self._rest)
            self._rest = ""

    def _line(self, line: str) -> None:
        self._lines += 1
        if line.strip():
            recorder = self._recorder
            recorder.write("line", s=self._stream, x=line[:_LONGEST], p=recorder.current, at=recorder.line())


def install(recorder: Recorder) -> tuple[Recorded, Recorded]:
    """Take the place of stdout and stderr."""
    out, err = Recorded(1, 1, recorder), Recorded(2, 2, recorder)
    sys.stdout = sys.__stdout__ = out  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = err  # type: ignore[misc]
    logging.lastResort = logging.StreamHandler(err)
    logging.lastResort.setLevel(logging.WARNING)
    show = warnings._showwarnmsg_impl  # type: ignore[attr-defined]

    def shown(message: Any) -> None:
        err.quiet = True
        try:
            show(message)
        finally:
            err.quiet = False

    warnings._showwarnmsg_impl = shown  # type: ignore[attr-defined]
    _watch_logs(recorder)
    return out, err


def _watch_logs(recorder: Recorder) -> None:
    """What the script logs, without the time that handlers put before it."""
    handle = logging.Logger.handle

    def handled(logger: logging.Logger, record: logging.LogRecord) -> None:
        if recorder.mine and record.pathname.startswith(recorder.root) and logger.hasHandlers():
            for line in f"{record.levelname} {record.getMessage()}".splitlines():
                recorder.write("line", s=3, x=line[:_LONGEST], p=recorder.current, at=recorder.line())
        handle(logger, record)

    logging.Logger.handle = handled  # type: ignore[method-assign,assignment]
