"""
The judge of `make test-null`: which tests pass although the rewriter does nothing.

A pytest plugin. A test that never asks the rewriter (it reads settings, draws a page, judges bytes) is not counted:
that is measured, by the calls that `sitecustomize.py` notes. Each of the others must fail, except those about programs
that must stay byte-identical: these carry the marker `unchanged`, must pass, and are `MOST` at most.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CALLS = "TORCHLIFT_TESTS_NULL_CALLS"
MOST = 100
"""So many tests may pass."""
ASKED = "asks the rewriter"


class NullRewriter:
    """Notes what each test does while the rewriter does nothing, and judges the whole at the end."""

    def __init__(self, calls: Path) -> None:
        self.calls = calls
        self.noticed: list[str] = []
        self.passed: list[str] = []
        self.marked: set[str] = set()
        self.outside = 0

    def _count(self) -> int:
        return self.calls.stat().st_size

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """A fixture that asks does so for every test that uses it, also where it is made once for many."""
        before = self._count()
        try:
            return (yield)
        finally:
            fixturedef.asks = self._count() > before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        """Note with the test whether it asks the rewriter, for the process that judges."""
        before = self._count()
        try:
            return (yield)
        finally:
            fixtures = (each for found in item._fixtureinfo.name2fixturedefs.values() for each in found)
            if self._count() > before or any(getattr(each, "asks", False) for each in fixtures):
                item.user_properties.append((ASKED, True))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one test; of one whose fixtures fail there is no `call`."""
        if report.when == "teardown" or (report.when == "setup" and not report.failed):
            return
        if "unchanged" in report.keywords:
            self.marked.add(report.nodeid)
        if report.failed or hasattr(report, "wasxfail"):
            self.noticed.append(report.nodeid)
        elif report.passed and (ASKED, True) in report.user_properties:
            self.passed.append(report.nodeid)
        else:
            self.outside += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Show a failure as what it is here: the test notices that nothing is done."""
        if report.failed:
            return "noticed", ".", "NOTICED"
        return None

    def _problems(self) -> list[str]:
        blind = [f"passes, though nothing was done: {name}" for name in self.passed if name not in self.marked]
        stale = [f"marked `unchanged`, and notices: {name}" for name in self.noticed if name in self.marked]
        many = [f"{len(self.passed)} tests pass, and {MOST} may"] if len(self.passed) > MOST else []
        empty = [] if self.noticed else ["no test notices that the rewriter does nothing: was it replaced?"]
        return [*sorted(blind), *sorted(stale), *many, *empty]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The exit status is the judge's: that tests fail is what is wanted."""
        if not hasattr(session.config, "workerinput") and session.exitstatus in (0, 1):
            session.exitstatus = pytest.ExitCode(bool(self._problems()))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what has passed."""
        for problem in self._problems():
            terminalreporter.line(problem)
        asking = len(self.noticed) + len(self.passed)
        terminalreporter.line(
            f"With a rewriter that does nothing {len(self.passed)} of {asking} tests pass, {len(self.marked)} marked "
            f"`unchanged`; {self.outside} others never ask it."
        )


def pytest_configure(config: pytest.Config) -> None:
    """Give this process, and what it starts, a file in which to note the calls."""
    descriptor, name = tempfile.mkstemp(prefix="torchlift-null-")
    os.close(descriptor)
    os.environ[CALLS] = name
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent)  # also for commands that run in another folder
    config.pluginmanager.register(NullRewriter(Path(name)), "null-judge")
    config.add_cleanup(Path(name).unlink)
