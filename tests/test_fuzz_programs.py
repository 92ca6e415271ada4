"""Programs of the grammar (`make fuzz-programs`): a hundred of them in every run, three thousand in the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def fuzzed(*options: str, seconds: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz_programs", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_migrated_programs_keep_every_promise(first: int) -> None:
    done = fuzzed("--first", str(first), "--count", "25", "--jobs", "1", seconds=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 programs" in done.stdout
    assert "held: 0" not in done.stdout


@pytest.mark.slow
def test_three_thousand_programs_keep_every_promise() -> None:
    done = fuzzed("--count", "3000", seconds=6 * 3600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_silent_fault_is_found_and_shrunk() -> None:
    """The figures of an evaluation that gathers nothing are those of one process."""
    fault = ("--plant", "accelerator.gather_for_metrics(", "(")
    done = fuzzed("--first", "2", "--count", "2", "--jobs", "1", *fault, seconds=1800)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "numbers on 2" in done.stdout
    shrunk = done.stdout.split("seed 2: ")[1]
    assert "accelerator" not in shrunk
    assert "argparse" not in shrunk, "what has nothing to do with the fault is gone"
