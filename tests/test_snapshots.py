"""What is on record is written one at a time, after its difference was shown, and never by a test."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).resolve().parent


def module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"beside_{Path(path).stem}", TESTS / path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


snapshots = module("snapshots.py")


class Store:
    """Three texts on record, two of which are others today."""

    def __init__(self) -> None:
        self.recorded = {"same": "a\n", "one": "old line\n", "two": "old\n"}
        self.today = {"same": "a\n", "one": "new line\n", "two": "new\n"}

    def run(self, *arguments: str) -> int:
        known = {
            name: snapshots.Snapshot(
                lambda name=name: self.recorded[name],
                lambda name=name: self.today[name],
                lambda text, name=name: self.recorded.update({name: text}),
            )
            for name in self.recorded
        }
        return int(snapshots.main(arguments, known))


def test_without_a_name_those_that_differ_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store()
    assert store.run() == 1
    assert capsys.readouterr().out.split() == ["one", "two"]
    assert store.recorded == Store().recorded


def test_a_name_shows_the_difference_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store()
    assert store.run("one") == 1
    assert "-old line\n+new line\n" in capsys.readouterr().out
    assert store.recorded == Store().recorded


def test_one_that_is_named_is_shown_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store()
    assert store.run("one", "--write") == 0
    assert "-old line\n+new line\n" in capsys.readouterr().out
    assert store.recorded == {**Store().recorded, "one": "new line\n"}


@pytest.mark.parametrize("arguments", [("--write",), ("one", "two", "--write"), ("three", "--write")])
def test_no_others_are_written(arguments: tuple[str, ...]) -> None:
    store = Store()
    with pytest.raises(SystemExit):
        store.run(*arguments)
    assert store.recorded == Store().recorded


CASES = """\
=== M1: one
--- built
x = 1
--- come
an older line

=== M2: another
--- silent
daily
--- built
y = 2
--- come
z = 3
"""


def test_one_case_of_the_rows_is_written_and_the_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = module("hazards/test_rows.py")
    file = tmp_path / "some.txt"
    file.write_text(CASES)
    first, second = rows.cases(file)
    monkeypatch.setattr(rows, "ROWS", tmp_path)
    monkeypatch.setattr(rows, "expected", lambda case: {"come": "a line", "findings": "note once", "again": ""})
    rows.record(first)
    wanted = CASES.replace("--- come\nan older line\n", "--- come\na line\n--- findings\nnote once\n")
    assert file.read_text() == wanted
    assert rows.cases(file)[1] == second


def test_the_files_of_rows_are_as_they_would_be_written() -> None:
    rows = module("hazards/test_rows.py")
    for file in rows.FILES:
        assert rows.written(rows.cases(file)) == file.read_text(), file.name
