"""Starts the sanitizer in a process, and reports at its end where no launcher does."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import time
from pathlib import Path

from ...config.environment import Environment, read_environment
from ...process.peers import started_at
from ...process.topology import Topology, topology
from .collectives import CollectiveCalls
from .effects import Files, Streams
from .events import EventLog
from .imports import Finder, ScriptCode
from .report import report
from .steps import StepSums
from .values import Values

_WAIT_SECONDS = 5.0
"""How long rank 0 waits for the end of the others, where it reports by itself."""


class _Started:
    """There is one in a process."""

    log: EventLog | None = None


def before_the_script(script: str) -> ScriptCode:
    """
    Record everything, from the first line of a script on.

    Args:
        script: its path; modules of its folder, and of the current one, are the script's, too.

    Returns:
        What runs it.
    """
    environment = read_environment()
    place = topology(environment)
    roots = (str(Path(script).resolve().parent), str(Path.cwd()))
    log = _start(environment, place, roots, "launcher")
    code = ScriptCode(Values(log).functions())
    Finder(log, code).install()
    return code


def with_the_accelerator() -> None:
    """Record what can be recorded when the script is under way, if the environment asks for it."""
    environment = read_environment()
    place = topology(environment)
    if _Started.log is None and place.distributed:
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        roots = (str(Path(main).resolve().parent), str(Path.cwd())) if main else (str(Path.cwd()),)
        _start(environment, place, roots, "accelerator")


def _start(environment: Environment, place: Topology, roots: tuple[str, ...], started: str) -> EventLog:
    folder = environment.sanitize_folder
    alone = folder is None
    if folder is None:
        folder = _common_folder(environment)
    Path(folder).mkdir(parents=True, exist_ok=True)
    log = _Started.log = EventLog(folder, place.rank, place.world_size, roots, started)
    atexit.register(_leave, log, Path(folder), place, alone)
    Streams(log).install()
    Files(log).install()
    CollectiveCalls(log).install()
    StepSums(log).install()
    return log


def _common_folder(environment: Environment) -> str:
    """The same for all processes of this machine: one launcher has started them."""
    parent = os.getppid()
    name = f"torchlift_sanitizer_{parent}_{started_at(parent)}_{environment.master_port}_{environment.restart}"
    return str(Path(tempfile.gettempdir()) / name)


def _leave(log: EventLog, folder: Path, place: Topology, alone: bool) -> None:
    if not log.mine:
        return
    log.end()
    if alone and place.is_local_main:
        until = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < until and not _all_have_ended(folder, place.local_world_size):
            time.sleep(0.05)
        sys.stderr.write(report(folder).text)
        sys.stderr.flush()


def _all_have_ended(folder: Path, count: int) -> bool:
    files = list(folder.glob("rank*.jsonl"))
    return len(files) == count and all(b'{"e": "end"' in file.read_bytes()[-100_000:] for file in files)
