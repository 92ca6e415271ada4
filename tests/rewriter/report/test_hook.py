"""What a hook says: one line a file, the most serious finding of it, and the conclusion."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchlift.rewriter.findings import Severity
from torchlift.rewriter.report.hook import hook_lines
from torchlift.rewriter.result import Change, Diagnosis, FileResult, Result
from torchlift.rewriter.source import SourceError, decode

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"


def file(name: str, *found: Diagnosis, edits: int = 0) -> FileResult:
    source = decode(b"a = 1\n", Path(name))
    changes = tuple(Change("backward", number + 1, 1, "why") for number in range(edits))
    return FileResult(source, b"a = 2\n" if edits else b"a = 1\n", changes, found)


def test_one_line_a_file_and_the_code_of_those_that_need_somebody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    note = Diagnosis("scheduler", Severity.NOTE, "good to know", "", 1)
    review = Diagnosis("same-noise", Severity.REVIEW, "look", "do it", 1)
    other = Diagnosis("same-noise", Severity.REVIEW, "look again", "do it", 1)
    blocked = Diagnosis("no-entry-point", Severity.BLOCKED, "stop", "start it", 1, 1, 2)
    files = (
        file("plain.py", note),
        file("change.py", note, edits=1),
        file("look.py", note, review, edits=2),
        file("stop.py", other, blocked, edits=3),
    )
    text = hook_lines(Result(files, 9), [SourceError("bad.py", 1, "broken", "Mend it")], hints=["To apply:  migrate"])
    assert text.splitlines() == [
        "error: bad.py:1: broken. Mend it.",
        "",
        "stop.py:1: blocked [no-entry-point] stop",
        "  1 | a = 1",
        "    | ^",
        "  help: start it",
        "stop.py:1: review [same-noise] look again",
        "",
        "look.py:1: review [same-noise] look",
        "  1 | a = 1",
        "    | ^^^^^",
        "  help: do it",
        "",
        "change.py: would change (1 edit)",
        "look.py: would change (2 edits)",
        "",
        "1 file blocked, 2 files would change, 1 file would change in part, 1 file not read; 9 files checked.",
        "To apply:  migrate",
    ]


def test_of_many_the_code_is_shown_for_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def many(name: str) -> list[Diagnosis]:
        return [Diagnosis(f"id-{n}", Severity.REVIEW, f"look at {name}", "do it", 1) for n in range(6)]

    names = [f"f{n:02}.py" for n in range(30)]
    lines = hook_lines(Result(tuple(file(name, *many(name)) for name in names), 30), []).splitlines()
    assert lines.count("and 2 other findings in this file") == 10
    assert lines[-23:-21] == ["", "f10.py:1: review [id-0] look at f10.py"]
    assert lines[-2:] == ["", "nothing to change; 30 files checked."]


def test_findings_of_one_cause_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stop = Diagnosis("shared-module", Severity.BLOCKED, "both use this", "give each its own", 1)
    lines = hook_lines(Result(tuple(file(f"f{n}.py", stop) for n in range(9)), 9), []).splitlines()
    also = ", ".join(f"f{n}.py:1" for n in range(1, 7))
    assert lines[0] == f"f0.py:1: blocked [shared-module] both use this (also {also} and 2 other places)"
    assert lines[3:] == ["  help: give each its own", "", "9 files blocked; 9 files checked."]


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchlift.codemods", "--hook", *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURES / "program_utils" / "before", tmp_path, dirs_exist_ok=True)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    return tmp_path


def test_the_command_says_no_more_with_hook(program: Path) -> None:
    done = run(program, "--check", "utils.py")
    assert (done.returncode, done.stdout) == (1, "")
    said = done.stderr.splitlines()
    assert [line.partition(" (")[0] for line in said[:2]] == ["train.py: would change", "utils.py: would change"]
    assert said[2] == "2 files would change; 4 files checked."
    assert [line.partition(":")[0] for line in said[3:]] == ["To apply"]
    done = run(program, "--write", "utils.py")
    assert [line.partition(":")[0] for line in done.stderr.splitlines()[3:]] == ["Next", "It needs"]


def test_what_is_not_blocked_can_be_written_by_the_command_that_is_shown(program: Path) -> None:
    (program / "other").mkdir()
    shutil.copy(FIXTURES / "already_distributed" / "before.py", program / "other" / "stopped.py")
    done = run(program, "--write", "utils.py", "other/stopped.py")
    assert done.returncode == 2
    said = done.stderr.splitlines()
    assert said[0].startswith("other/stopped.py:34: blocked [already-distributed] ")
    assert said[1:3] == ["  34 |     dist.all_reduce(counts, group=group)", f"     |     {'^' * 36}"]
    assert "Nothing was written: a file is blocked." in said
    shown = next(line for line in said if line.startswith("To apply what is not blocked: "))
    _, _, arguments = shown.partition(" --hook ")
    assert run(program, *arguments.split()).returncode == 0
    assert "PartialState" in (program / "utils.py").read_text()
