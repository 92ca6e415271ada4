"""Where what the processes print goes: the terminal, files of their own, or both."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..errors import LaunchError

_STREAMS = {"stdout": 1, "stderr": 2}
_BOTH = 3
_JOIN_SECONDS = 2.0
"""How long a stream may stay open after its process has ended: another one may have inherited it."""


@dataclass(frozen=True)
class Wanted:
    """Streams of processes, by their number on this machine: 1 is stdout, 2 is stderr, 3 both."""

    every: int = 0
    single: Mapping[int, int] | None = None
    """Where one was said for single processes; the others have none."""

    def of(self, local_rank: int) -> int:
        """Those of one process."""
        return self.every if self.single is None else self.single.get(local_rank, 0)

    @property
    def any(self) -> bool:
        """At least one."""
        return bool(self.every) or any((self.single or {}).values())


def parse_wanted(option: str, text: str | None) -> Wanted:
    """
    Read "3", or "0:1,1:3" for single processes.

    Raises:
        LaunchError: it is neither.
    """
    try:
        if text is None:
            return Wanted()
        if ":" not in text:
            return Wanted(_bits(text))
        pairs = [part.split(":") for part in text.split(",")]
        return Wanted(single={int(rank): _bits(bits) for rank, bits in pairs})
    except ValueError as error:
        raise LaunchError(
            f"{option} is {text!r}: give 1 for stdout, 2 for stderr, 3 for both, 0 for neither; or that for single "
            "processes of this machine: 0:3,1:1."
        ) from error


def _bits(text: str) -> int:
    bits = int(text)
    if not 0 <= bits <= _BOTH:
        raise ValueError(text)
    return bits


class Logs:
    """
    Files for what processes print: `{folder}/attempt_{n}/{rank}/stdout.log`, `stderr.log`.

    Args:
        folder: of one run.
        redirects: what goes to files only.
        tee: what goes to files and, line by line with the rank before it, to the terminal.
    """

    def __init__(self, folder: Path, redirects: Wanted, tee: Wanted) -> None:
        self.folder = folder
        self._redirects = redirects
        self._tee = tee
        self._pumps: list[threading.Thread] = []

    def streams(self, attempt: int, rank: int, local_rank: int) -> dict[str, Any]:
        """Arguments for `subprocess.Popen`."""
        chosen: dict[str, Any] = {}
        for name, bit in _STREAMS.items():
            if self._tee.of(local_rank) & bit:
                chosen[name] = subprocess.PIPE
            elif self._redirects.of(local_rank) & bit:
                chosen[name] = self._file(attempt, rank, name).open("wb")
        return chosen

    def opened(self, process: subprocess.Popen[bytes], attempt: int, rank: int) -> None:
        """The process has started: what comes through its pipes is written down and shown."""
        for name, shown in (("stdout", sys.stdout), ("stderr", sys.stderr)):
            pipe = getattr(process, name)
            if pipe is not None:
                arguments = pipe, self._file(attempt, rank, name), shown, f"[rank{rank}]: "
                pump = threading.Thread(target=_copy, args=arguments, daemon=True)
                pump.start()
                self._pumps.append(pump)

    def finish(self) -> None:
        """The processes have ended: show the rest."""
        for pump in self._pumps:
            pump.join(_JOIN_SECONDS)
        self._pumps.clear()

    def _file(self, attempt: int, rank: int, name: str) -> Path:
        folder = self.folder / f"attempt_{attempt}" / str(rank)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"


def _copy(pipe: IO[bytes], file: Path, shown: IO[str], before: str) -> None:
    with pipe, file.open("wb", buffering=0) as log:
        for line in iter(pipe.readline, b""):
            log.write(line)
            shown.write(before + line.decode(errors="replace"))
            shown.flush()


def logs_of(log_dir: str | None, redirects: str | None, tee: str | None) -> Logs | None:
    """
    What the command line says about it; None where everything goes to the terminal as it is.

    A folder alone means files and terminal. Without a folder, a temporary one is made.

    Raises:
        LaunchError: the words mean nothing, or the folder cannot be made.
    """
    only, both = parse_wanted("--redirects", redirects), parse_wanted("--tee", tee)
    if log_dir is not None and redirects is None and tee is None:
        both = Wanted(_BOTH)
    if not only.any and not both.any:
        return None
    import tempfile  # not needed by most

    try:
        if log_dir is not None:
            Path(log_dir).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="torchlift_" if log_dir is None else "run_", dir=log_dir))
    except OSError as error:
        raise LaunchError(f"cannot write what processes print to {log_dir}: {error}") from error
    return Logs(folder, only, both)
