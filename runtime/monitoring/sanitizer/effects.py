"""What the script prints, and which files it opens for writing."""

from __future__ import annotations

import os
import re
import sys
from functools import wraps
from typing import Any

import torch

from ...process.call_log import OURS
from .events import EventLog, place
from .values import path_of

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NO_FILES = ("/dev/", "/proc/", "/sys/")
_BREAKS = re.compile(r"\r\n|\n|\r")
_LONGEST = 500
_SPEAKS_FOR_THE_SCRIPT = ("logging", "tqdm", "contextlib.py", "traceback.py", "pprint.py", "print.py", "warnings.py")
"""Libraries by which a script prints; what others print is theirs."""
_WRITES_LINES = frozenset({"write", "writelines", "flush"})
"""Methods of a stream of the script's own in the place of `sys.stdout`: it hands on what others print."""


class Streams:
    """
    Records complete lines with the line of the script that has printed them.

    Args:
        log: of this process.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._rest = {"stdout": "", "stderr": ""}

    def install(self) -> None:
        """Watch what is written from now on."""
        for name in self._rest:
            stream = getattr(sys, name)
            if stream is not None:
                self._watch(name, stream)

    def _watch(self, name: str, stream: Any) -> None:
        original = stream.write

        @wraps(original)
        def write(text: str) -> Any:
            result = original(text)
            if self._log.mine and isinstance(text, str):
                self._take(name, text)
            return result

        stream.write = write

    def _take(self, name: str, text: str) -> None:
        *complete, rest = _BREAKS.split(self._rest[name] + text)
        self._rest[name] = rest[:_LONGEST]
        at = self._speaker() if any(line.strip() for line in complete) else ""
        for line in complete if at else ():
            if line.strip():
                self._log.write("line", at=at, x=line[:_LONGEST])

    def _speaker(self) -> str:
        """The line of the script that prints; empty when a library does so on its own."""
        frame, warned = sys._getframe(3), False
        while frame is not None:
            file = frame.f_code.co_filename
            own = self._log.is_script(file)
            if own and frame.f_code.co_name not in _WRITES_LINES:
                return place(frame)
            by_warning = "warnings.py" in file
            speaks = file.startswith(OURS) or any(part in file for part in _SPEAKS_FOR_THE_SCRIPT)
            if not own and (not speaks or (warned and not by_warning)):  # a warning of a library is not the script's
                return ""
            warned = warned or by_warning
            frame = frame.f_back  # type: ignore[assignment]
        return ""


class Files:
    """
    Records which files the script opens for writing; Python tells of every one before it is opened.

    Args:
        log: of this process.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._busy = False

    def install(self) -> None:
        """Watch from now on. There is no end: audit hooks stay."""
        sys.addaudithook(self._audit)
        original = torch.save

        @wraps(original)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            path = path_of(f) if isinstance(f, (str, os.PathLike)) else None
            if path is not None:  # written in C++, of which Python does not tell
                self._opened(path)
            return original(obj, f, *args, **kwargs)

        torch.save = save
        torch.serialization.save = save
        self._watch_safetensors()

    def _watch_safetensors(self) -> None:
        """They are written in Rust."""
        try:
            import safetensors.torch as saver
        except ImportError:
            return
        for name in ("save_file", "save_model"):
            original = getattr(saver, name)

            def save(what: Any, filename: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
                self._opened(os.fsdecode(filename))
                return _original(what, filename, *args, **kwargs)

            setattr(saver, name, wraps(original)(save))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and not self._busy:  # the usual way to write a file as a whole
            self._opened(os.fsdecode(arguments[1]))
        if event != "open":
            return
        path, mode, flags = arguments
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else (flags or 0) & _WRITES
        if writes and not self._busy and isinstance(path, (str, bytes, os.PathLike)):
            self._opened(os.fsdecode(path))

    def _opened(self, path: str) -> None:
        if not self._log.mine or self._busy:
            return
        self._busy = True
        try:
            whole = os.path.realpath(path)
            of_none = whole.startswith(_NO_FILES) or whole.endswith(".lock") or os.path.isdir(whole)  # noqa: PTH112
            at = "" if of_none else self._opener()  # in a folder: a file without a name
            if at:
                self._log.write("open", at=at, path=whole)
        finally:
            self._busy = False

    def _opener(self) -> str:
        """The line of the script; empty while Python imports, or a lock is taken."""
        frame = sys._getframe(3)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith("<frozen importlib") or "filelock" in file:
                return ""
            if self._log.is_script(file):
                return place(frame)
            frame = frame.f_back  # type: ignore[assignment]
        return ""
