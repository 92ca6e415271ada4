"""What one process of several does: in a copy of its own, run a test file and trace it, or try one mutant."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import time
from pathlib import Path

from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkResult

from .copies import make, pytest, tidy
from .covering import Chosen, trace


def begin(copies: multiprocessing.Queue[str]) -> None:
    """Make the next copy. Cosmic Ray's runner works in the current folder."""
    folder = Path(copies.get())
    make(folder)
    os.chdir(folder)


def trace_here(test_file: str, into: Path) -> None:
    """Trace a test file in the copy that is the current folder."""
    trace(Path.cwd(), test_file, into)


def attempt(mutation: MutationSpec, chosen: Chosen) -> WorkResult:
    """
    Try one mutant in the copy that is the current folder.

    The result's output begins with what it was tried against, so that a survivor is tried again when that has changed.
    """
    if not chosen.limits:
        return WorkResult(WorkerOutcome.NO_TEST, f"{chosen.key}\nno test executes it", TestOutcome.SURVIVED)
    copy = Path.cwd()
    limits = copy.with_name(f"{copy.name}-chosen.json")
    limits.write_text(json.dumps(chosen.limits))
    os.environ["MUTANTS_CHOSEN"] = str(limits)
    command = [*pytest(copy), "-x", "-q", "--tb=line", "-p", "tests.mutants.choosing", *chosen.files]
    start = time.monotonic()
    result = mutate_and_test([mutation], shlex.join(command), sum(chosen.limits.values()) + 600)
    tidy(copy)
    assert result.worker_outcome is WorkerOutcome.NORMAL, result.output
    seconds = time.monotonic() - start
    output = f"{chosen.key}\n{len(chosen.limits)} tests, {seconds:.1f} s\n{(result.output or '')[-3000:]}"
    return WorkResult(result.worker_outcome, output, result.test_outcome, result.diff)
