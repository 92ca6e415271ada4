"""A plugin of pytest: appends each outcome to the file ACCELERATES_OUTCOMES at once, so that a crash loses none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

_FILE = Path(os.environ["ACCELERATES_OUTCOMES"])  # read at once: tests clear the environment


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test, or a part of it, has ended."""
    if report.when == "call" or report.outcome != "passed":
        _write(report.nodeid, report.outcome, report.longrepr)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file was read, or could not be."""
    if report.outcome != "passed":
        _write(report.nodeid, report.outcome, report.longrepr)


def _write(name: str, outcome: str, told: object) -> None:
    if isinstance(told, tuple):  # where and why it was skipped
        reason = str(told[2]).removeprefix("Skipped: ")
    else:
        crash = getattr(told, "reprcrash", None)
        lines = str(crash.message if crash else told or "").strip().splitlines()
        # where a traceback is told (a file that cannot be imported, a process that was started), the error is its end
        reason = (lines[0] if crash and not lines[0].endswith(":") else lines[-1]) if lines else ""
    with _FILE.open("a", encoding="utf-8") as file:
        file.write(json.dumps([name, outcome, reason]) + "\n")
