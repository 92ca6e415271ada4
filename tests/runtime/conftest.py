"""Helpers for tests of the runtime: scripts that run as real processes on gloo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
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
    return {**kept, "OMP_NUM_THREADS": "1", "TORCHLIFT_CPU": "1", "PYTHONWARNINGS": "error::FutureWarning"}


def run_job(
    script: Path, processes: int, *arguments: object, seconds: float = 150, fails: bool = False, **variables: str
) -> list[Any]:
    """
    Run a script as `processes` connected processes.

    Returns, per rank, what the script printed after "RESULT " as JSON (None without). With `fails`, returns per rank
    (exit status, output) instead, whatever happened.
    """
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(get_free_port()), "WORLD_SIZE": str(processes)}
    base = {**clean_environment(), **place, "LOCAL_WORLD_SIZE": str(processes), **variables}
    started = [
        subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)],
            env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for rank in range(processes)
    ]
    until = time.monotonic() + seconds
    outputs = []
    try:
        for one in started:
            try:
                outputs.append(one.communicate(timeout=max(0.1, until - time.monotonic()))[0])
            except subprocess.TimeoutExpired:  # noqa: PERF203
                os.killpg(one.pid, signal.SIGKILL)
                outputs.append(one.communicate()[0] + f"\n[no end after {seconds} s]")
    finally:
        for one in started:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()
    if fails:
        return [(one.returncode, text) for one, text in zip(started, outputs, strict=True)]
    if any(one.returncode for one in started):
        report = "\n".join(f"--- rank {r}: exit {one.returncode}\n{outputs[r]}" for r, one in enumerate(started))
        pytest.fail(f"{script.name} {' '.join(map(str, arguments))} failed\n{report}", pytrace=False)
    return [_result(text) for text in outputs]


def _result(output: str) -> Any:
    for line in output.splitlines():
        if line.startswith(_MARK):
            return json.loads(line[len(_MARK) :])
    return None


@pytest.fixture
def job() -> Callable[..., list[Any]]:
    """`job("name.py", processes, *arguments, VARIABLE="value")` runs a script of the jobs folder."""
    return lambda name, *rest, **more: run_job(JOBS / name, *rest, **more)


@pytest.fixture
def job_text(tmp_path: Path) -> Callable[..., list[Any]]:
    """`job_text(source, processes, ...)` runs a script given as text."""

    def run(source: str, *rest: Any, **more: Any) -> list[Any]:
        script = tmp_path / "script.py"
        script.write_text(source)
        return run_job(script, *rest, **more)

    return run
