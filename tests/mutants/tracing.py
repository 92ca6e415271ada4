"""
Record which test executes which lines, in pytest and in every process that a test starts or forks.

Loaded by the interpreter of a copy at its start when `MUTANTS_TRACE` names a folder, and again by pytest as a plugin.
Each process writes one file there when it ends.
"""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import coverage
import pytest

_FOLDER = Path(os.environ["MUTANTS_TRACE"])
_ROOT = Path(os.environ["MUTANTS_ROOT"])
_tracer = coverage.Coverage(data_file=None, config_file=False, include=[f"{_ROOT}/r*/**/*.py"])
_exit = os._exit
_told: set[int] = set()
_pytest: dict[str, Any] = {"pid": None, "seconds": {}, "failed": []}


def _write() -> None:
    """Once a process. One that is not pytest's works for one test, which pytest names in the environment."""
    if os.getpid() in _told:
        return
    _told.add(os.getpid())
    _tracer.stop()
    data = _tracer.get_data()
    lines: dict[str, dict[str, int]] = {}
    current = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    ours = os.getpid() == _pytest["pid"]
    for file in data.measured_files():
        name = str(Path(file).relative_to(_ROOT))
        for line, contexts in data.contexts_by_lineno(file).items():
            for test in contexts if ours else [current]:
                lines.setdefault(test, {}).setdefault(name, 0)
                lines[test][name] |= 1 << line
    masks = {test: {name: f"{mask:x}" for name, mask in found.items()} for test, found in lines.items()}
    told = {"seconds": _pytest["seconds"], "failed": _pytest["failed"]} if ours else {}
    descriptor, path = tempfile.mkstemp(dir=_FOLDER, suffix=".partial")
    with os.fdopen(descriptor, "w") as opened:
        json.dump({"lines": masks, **told}, opened)
    Path(path).rename(Path(path).with_suffix(".json"))


def _leave(status: int) -> NoReturn:
    """Processes that another one has forked end without the steps of `atexit`."""
    _write()
    _exit(status)


def pytest_configure() -> None:
    """This process is pytest's."""
    _pytest["pid"] = os.getpid()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Everything until the next test belongs to this one."""
    _tracer.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """How long a test takes, what it shares with others not counted, and whether it holds at all."""
    if report.when == "call":
        _pytest["seconds"][report.nodeid] = round(report.duration, 3)
    if report.failed or report.skipped:
        _pytest["failed"].append(report.nodeid)


_tracer.start()
atexit.register(_write)
os._exit = _leave
