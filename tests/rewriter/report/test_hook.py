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


def test_one_line_a_file_and_what_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        "stop.py:1: blocked [no-entry-point] stop",
        "change.py: would change (1 edit)",
        "look.py: would change (2 edits), 1 to review [same-noise]",
        "  look.py:1: review [same-noise] look",
        "stop.py: 1 to review [same-noise]",
        "  stop.py:1: review [same-noise] look again",
        "",
        "1 file blocked, 2 files would change, 1 file would change in part, 1 file not read; 9 files checked.",
        "To apply:  migrate",
    ]


def test_what_was_written_is_not_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    review = Diagnosis("same-noise", Severity.REVIEW, "look", "do it", 1)
    text = hook_lines(Result((file("look.py", review, edits=2),), 1), [], verb="changed")
    assert text.splitlines()[:2] == [
        "look.py: changed (2 edits), 1 to review [same-noise]",
        "  look.py:1: review [same-noise] look",
    ]


def test_what_else_stops_a_file_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def many(name: str) -> list[Diagnosis]:
        return [Diagnosis(f"id-{n}", Severity.BLOCKED, f"{name} stops", "do it", 1) for n in range(6)]

    names = [f"f{n:02}.py" for n in range(30)]
    lines = hook_lines(Result(tuple(file(name, *many(name)) for name in names), 30), []).splitlines()
    assert lines[0] == "f00.py:1: blocked [id-0] f00.py stops (and 5 other findings in this file)"
    assert len(lines) == 32 and lines[-2:] == ["", "30 files blocked; 30 files checked."]


def test_lines_are_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    long = Diagnosis("unknown-loader", Severity.BLOCKED, "a word " * 40, "do this " * 40, 1)
    lines = hook_lines(Result((file("stop.py", long),), 1), []).splitlines()
    assert max(map(len, lines)) <= 100
    assert [line[:6] for line in lines if line.startswith(("stop", "  help"))] == ["stop.p"]


def test_findings_of_one_cause_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stop = Diagnosis("shared-module", Severity.BLOCKED, "both use this", "give each its own", 1)
    lines = hook_lines(Result(tuple(file(f"f{n}.py", stop) for n in range(9)), 9), []).splitlines()
    also = ", ".join(f"f{n}.py:1" for n in range(1, 7))
    assert lines[:2] == [
        f"f0.py:1: blocked [shared-module] both use this (also {also.partition(', f6')[0]},",
        "    f6.py:1 and 2 other places)",
    ]
    assert lines[2:] == ["", "9 files blocked; 9 files checked."]


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
    assert [line.partition(":")[0] for line in said[3:]] == ["To apply", "To see the changes"]
    assert said[4].endswith(" train.py"), "the script of the file that is checked in"
    done = run(program, "--write", "utils.py")
    assert [line.partition(":")[0] for line in done.stderr.splitlines()[3:]] == ["Next", "It needs"]
    again = run(program, "--write", "utils.py")
    assert again.returncode == 0 and "Next" not in again.stderr


def test_what_is_not_blocked_can_be_written_by_the_command_that_is_shown(program: Path) -> None:
    (program / "other").mkdir()
    shutil.copy(FIXTURES / "already_distributed" / "before.py", program / "other" / "stopped.py")
    done = run(program, "--write", "utils.py", "other/stopped.py")
    assert done.returncode == 2
    said = done.stderr.splitlines()
    assert said[0].startswith("other/stopped.py:34: blocked [already-distributed] ")
    assert any(line.startswith("To learn more: ") and "stopped.py:34" in line for line in said)
    assert "Nothing was written: a file is blocked." in said
    shown = next(line for line in said if line.startswith("To apply what is not blocked: "))
    _, _, arguments = shown.partition(" --hook ")
    assert run(program, *arguments.split()).returncode == 0
    assert "PartialState" in (program / "utils.py").read_text()


def test_a_command_shows_what_is_only_counted(program: Path) -> None:
    lines = (program / "train.py").read_text().replace("import torch\n", "import torch\nimport houses\n", 1)
    (program / "train.py").write_text(lines + "    houses.send(model)\n")
    said = run(program, "--check", "utils.py").stderr
    assert "train.py: would change (15 edits), 1 to review [once]" in said
    shown = next(line for line in said.splitlines() if line.startswith("To read the findings: "))
    assert shown.endswith(" train.py")


def test_a_broken_file_that_trains_is_not_passed_over(program: Path) -> None:
    (program / "train.py").write_text((program / "train.py").read_text() + "def f(:\n")
    done = run(program, "--check", "utils.py", "train.py")
    assert done.returncode == 3
    assert done.stderr.startswith("error: train.py:54: not valid Python")
    (program / "other.py").write_text((FIXTURES / "mnist_functions" / "before.py").read_text())
    assert "1 file not read; 2 files checked." in run(program, "--check", "utils.py", "train.py", "other.py").stderr


def test_without_a_hook_the_programs_that_are_not_blocked_have_a_command(program: Path) -> None:
    (program / "other").mkdir()
    shutil.copy(FIXTURES / "already_distributed" / "before.py", program / "other" / "stopped.py")
    command = [sys.executable, "-m", "torchlift.codemods"]
    said = subprocess.run([*command, "--check", "."], cwd=program, capture_output=True, text=True, check=False).stderr
    shown = next(line for line in said.splitlines() if line.startswith("To apply what is not blocked: "))
    assert shown.endswith(" --write train.py")
    done = subprocess.run([*command, "--write", "train.py"], cwd=program, capture_output=True, check=False)
    assert done.returncode == 0 and "Accelerator" in (program / "train.py").read_text()
