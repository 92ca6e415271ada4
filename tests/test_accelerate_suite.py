"""`make test-accelerate`: whose `import accelerate` is, and is a failing test seen?. The tests run here are ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHIM = ROOT / "tests" / "accelerate_suite" / "shim"
HELPERS = "src/accelerate/test_utils"

TESTS = """
import subprocess, sys
import unittest

import accelerate.errors
from accelerate.test_utils.testing import helped


class Things(unittest.TestCase):
    def test_ours(self):
        import torchlift.runtime.errors
        assert accelerate.errors is torchlift.runtime.errors and helped() is accelerate.errors

    def test_started(self):
        code = "from accelerate.errors import TorchliftError; print(TorchliftError.__module__)"
        assert subprocess.check_output([sys.executable, "-c", code], text=True).startswith("torchlift.runtime")

    def test_value(self):
        assert 1 == 1, "the value"

    def test_parts(self):
        for n in range(2):
            with self.subTest(n=n):
                assert n == 0, "the second part"

    @unittest.skip("no such device")
    def test_skipped(self):
        raise AssertionError
"""
CRASHES = "import os\n\n\ndef test_first():\n    pass\n\n\ndef test_crash():\n    os._exit(7)\n"
UNREADABLE = "from accelerate.commands.launch import launch_command\n\n\ndef test_nothing():\n    pass\n"
SCRIPT = """
import os
import accelerate.errors
print(accelerate.errors.TorchliftError.__module__)
if os.environ.get("WORLD_SIZE") == "2":
    raise accelerate.errors.NotAvailableYet("this", "Leave it out.")
"""
FILES = {
    "src/accelerate/__init__.py": '__version__ = "1.2.3"\nraise ImportError("this is not ours")\n',
    f"{HELPERS}/__init__.py": "",
    f"{HELPERS}/testing.py": "from .. import errors\n\n\ndef helped():\n    return errors\n",
    f"{HELPERS}/scripts/test_cli.py": SCRIPT,
    "tests/__init__.py": "",
    "tests/test_accelerator.py": TESTS,
    "tests/test_logging.py": CRASHES,
    "tests/test_utils.py": UNREADABLE,
    "tests/test_new.py": "",
}
HEART = ("src/accelerate/__init__.py", f"{HELPERS}/__init__.py", f"{HELPERS}/testing.py", "tests/__init__.py")
THINGS = "tests/test_accelerator.py::Things::"


class Place:
    """A folder that looks like Accelerate's sources (with one file of tests, or all), kept figures, and the command."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.figures = folder / "figures.json"
        self.logs = folder / "logs"
        for name in (*HEART, "tests/test_accelerator.py"):
            self.writes(name, FILES[name])

    def writes(self, name: str, text: str) -> None:
        (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (self.checkout / name).write_text(text)

    def kept(self) -> dict[str, Any]:
        kept: dict[str, Any] = json.loads(self.figures.read_text())
        return kept

    def runs(self, *words: str, checkout: str | None = None) -> tuple[int, str]:
        where = ["--figures", str(self.figures), "--logs", str(self.logs), "--python", sys.executable]
        command = [sys.executable, "-m", "tests.accelerate_suite", checkout or str(self.checkout), *where, *words]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_came_out_is_printed_and_kept(place: Place) -> None:
    for name, text in FILES.items():
        place.writes(name, text)
    status, printed = place.runs("--commit", "abc")
    assert status == 0, printed
    kept = place.kept()
    assert kept["accelerate"]["commit"] == "abc" and kept["accelerate"]["version"] == "1.2.3"
    assert set(kept["passed"]) == {
        f"{THINGS}test_ours",
        f"{THINGS}test_started",
        f"{THINGS}test_value",
        "tests/test_logging.py::test_first",
        "test_cli.py (torchlift launch, 1)",
    }
    assert kept["skipped"] == {f"{THINGS}test_skipped": "no such device"}
    failed = kept["failed"]
    assert "the second part" in failed.pop(f"{THINGS}test_parts")
    assert failed.pop("tests/test_logging.py") == "ended with status 7"
    assert "No module named 'accelerate.commands'" in failed.pop("tests/test_utils.py")
    assert "NotAvailableYet" in failed.pop("test_cli.py (torchlift launch, 2)")
    assert not failed
    assert kept["counts"] == {
        "tests": {"passed": 4, "failed": 3, "skipped": 1},
        "scripts": {"passed": 1, "failed": 1, "skipped": 0},
    }
    for line in ("tests: 4 passed", f"  {THINGS}test_skipped: no such device", "in neither list of selection.py:"):
        assert line in printed.splitlines()
    assert "  tests/test_new.py" in printed.splitlines()


def test_what_became_worse_is_named_and_the_status_says_so(place: Place) -> None:
    only = ("--only", "test_accelerator.py")
    place.runs()
    before = place.figures.read_text()
    assert place.runs(*only)[0] == 0, "nothing has changed"

    place.writes("tests/test_accelerator.py", TESTS.replace("1 == 1", "1 == 2"))
    status, printed = place.runs(*only)
    assert status == 1
    assert f"  {THINGS}test_value: failed, was passed (AssertionError: the value" in printed
    assert place.figures.read_text() == before

    skips = TESTS.replace("    def test_value", "    @unittest.skip('not today')\n    def test_value")
    place.writes("tests/test_accelerator.py", skips)
    status, printed = place.runs(*only)
    assert status == 1 and f"  {THINGS}test_value: skipped, was passed (not today)" in printed

    place.writes("tests/test_accelerator.py", TESTS.replace("assert n == 0", "assert n < 2"))
    status, printed = place.runs(*only)
    assert status == 0 and f"  {THINGS}test_parts: passed, was failed" in printed
    assert place.figures.read_text() == before, "a part of a run replaces nothing"
    assert place.runs(*only, "--accept")[0] == 0
    assert place.figures.read_text() == before, "nor does it when asked, where the tests are others"


def test_a_test_that_is_gone_is_worse_where_the_tests_are_the_same(place: Place) -> None:
    place.writes("tests/test_accelerator.py", "def test_one():\n    pass\n")
    assert place.runs()[0] == 0
    kept = place.kept()
    kept["passed"]["tests/test_accelerator.py::test_two"] = ""
    place.figures.write_text(json.dumps(kept))
    status, printed = place.runs()
    assert status == 1 and "  tests/test_accelerator.py::test_two: gone, was passed" in printed
    assert place.kept() == kept

    kept["passed"]["test_cli.py (torchlift launch, 1)"] = ""
    place.figures.write_text(json.dumps(kept))
    assert place.runs("--only", "test_accelerator.py", "--accept")[0] == 0
    assert place.kept()["passed"] == {
        "test_cli.py (torchlift launch, 1)": "",
        "tests/test_accelerator.py::test_one": "",
    }, "a part replaces itself when it is asked for"
    assert place.runs("--accept")[0] == 0
    assert list(place.kept()["passed"]) == ["tests/test_accelerator.py::test_one"], "kept, because it was asked for"
    kept["accelerate"]["digest"] = "another"
    place.figures.write_text(json.dumps(kept))
    status, printed = place.runs()
    assert status == 0 and "not comparable: 2" in printed


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("", "which checkout of Accelerate?"),
        ("nowhere", "nowhere is not a folder"),
        ("bare", "is a bare git repository: export it"),
        ("empty", "is no checkout of Accelerate, it has no src/accelerate/__init__.py"),
    ],
)
def test_what_is_no_checkout_is_refused(place: Place, tmp_path: Path, folder: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare" / "objects").mkdir(parents=True)
    (tmp_path / "bare" / "HEAD").write_text("ref: refs/heads/main\n")
    command = [sys.executable, "-m", "tests.accelerate_suite", folder and str(tmp_path / folder), "--check"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 3 and said in ended.stderr and "Traceback" not in ended.stderr


def test_damaged_figures_and_a_missing_environment_are_no_figures(place: Place) -> None:
    place.figures.write_text('{"date": "2026-')
    status, printed = place.runs()
    assert status == 3 and "is damaged" in printed
    status, printed = place.runs("--python", "nowhere/python")
    assert status == 3 and "make test-accelerate creates it" in printed


def test_accelerate_is_the_runtime_itself(place: Place) -> None:
    """The same objects, submodules too, and a patch of a name there is one of ours."""
    code = """
from unittest.mock import patch
import accelerate, accelerate.utils.operations, accelerate.state, accelerate.data_loader
from accelerate.tracking import GeneralTracker
from accelerate.utils import gather
from torchlift import runtime
from torchlift.runtime import state, data_loader, tracking, utils
assert accelerate.Accelerator is runtime.Accelerator
assert accelerate.state is state and accelerate.data_loader is data_loader and accelerate.utils is utils
assert GeneralTracker is tracking.GeneralTracker and gather is utils.gather
assert utils.__spec__.name == utils.__name__ == "torchlift.runtime.utils"
with patch("accelerate.accelerator.facade.share_unseeded", None):
    from torchlift.runtime.accelerator import facade
    assert facade.share_unseeded is None
for wrong in ("accelerate.commands", "accelerate.utils.nothing"):
    try:
        __import__(wrong)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{wrong} was found")
"""
    env = {**os.environ, "PYTHONPATH": str(SHIM), "ACCELERATES_CHECKOUT": str(place.checkout)}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


ON_XLA = """
import os


def test_devices():
    assert (os.environ["PJRT_DEVICE"], os.environ["CPU_NUM_DEVICES"]) == ("CPU", "3")
"""


def test_devices_of_torch_xla_have_files_of_their_own(place: Place) -> None:
    for name in FILES:
        place.writes(name, FILES[name])
    place.writes("tests/test_accelerator.py", ON_XLA)
    status, printed = place.runs("--xla", "3", "--only", "test_accelerator")
    assert status == 0 and "tests: 1 passed, 0 failed, 0 skipped" in printed, printed
    assert "test_utils" not in printed and "in neither list" not in printed
