"""Helpers for tests of the runtime: scripts that run as real processes on gloo."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchlift.runtime.process.system import get_free_port

JOBS = Path(__file__).parent / "jobs"
_MARK = "RESULT "


def clean_environment() -> dict[str, str]:
    """The environment without what a surrounding job might have set."""
    dropped = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {k: v for k, v in os.environ.items() if k not in dropped and not k.startswith(("TORCHLIFT_", "ACCELERATE_"))}
    told = "error::FutureWarning,ignore:`torch.jit:FutureWarning"  # that it is deprecated, from torch 2.14 on
    return {**kept, "OMP_NUM_THREADS": "1", "TORCHLIFT_CPU": "1", "PYTHONWARNINGS": told}


def run_job(
    forks: Any,
    script: Path,
    processes: int,
    *arguments: object,
    seconds: float = 300,
    fails: bool = False,
    **variables: str,
) -> list[Any]:
    """
    Run a script as `processes` connected processes.

    Returns, per rank, what the script printed after "RESULT " as JSON (None without). With `fails`, returns per rank
    (exit status, output) instead, whatever happened.
    """
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(get_free_port()), "WORLD_SIZE": str(processes)}
    base = {**clean_environment(), **place, "LOCAL_WORLD_SIZE": str(processes), **variables}
    argv = [str(script), *map(str, arguments)]
    started = [
        forks.start(argv, Path.cwd(), {**base, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(processes)
    ]
    until = time.monotonic() + seconds
    statuses = [one.wait(max(0.1, until - time.monotonic())) for one in started]
    late = f"\n[no end after {seconds} s]"
    outputs = [one.output()[0] + (late if s is None else "") for one, s in zip(started, statuses, strict=True)]
    if fails:
        return list(zip(statuses, outputs, strict=True))
    if any(statuses) or None in statuses:
        report = "\n".join(f"--- rank {r}: exit {status}\n{outputs[r]}" for r, status in enumerate(statuses))
        pytest.fail(f"{script.name} {' '.join(map(str, arguments))} failed\n{report}", pytrace=False)
    return [_result(text) for text in outputs]


def _result(output: str) -> Any:
    for line in output.splitlines():
        if line.startswith(_MARK):
            return json.loads(line[len(_MARK) :])
    return None


@pytest.fixture(scope="session")
def job(forks: Any) -> Callable[..., list[Any]]:
    """`job("name.py", processes, *arguments, VARIABLE="value")` runs a script of the jobs folder."""
    return lambda name, *rest, **more: run_job(forks, JOBS / name, *rest, **more)


@pytest.fixture
def job_text(forks: Any, tmp_path: Path) -> Callable[..., list[Any]]:
    """`job_text(source, processes, ...)` runs a script given as text."""

    def run(source: str, *rest: Any, **more: Any) -> list[Any]:
        script = tmp_path / "script.py"
        script.write_text(source)
        return run_job(forks, script, *rest, **more)

    return run


@pytest.fixture(scope="session")
def sanitized(forks: Any) -> Callable[..., list[Any]]:
    """`sanitized("name.py", folder, *arguments)` runs a script of the jobs folder under the sanitizer, on two ranks."""

    def run(name: str, folder: Path, *rest: Any, ranks: int = 2, **more: Any) -> list[Any]:
        under = ["-m", "torchlift.runtime.monitoring.sanitizer", JOBS / name]
        place = {"TORCHLIFT_SANITIZE": "1", "TORCHLIFT_SANITIZE_FOLDER": str(folder)}
        return run_job(forks, Path(under[0]), ranks, *under[1:], *rest, **place, **more)

    return run
