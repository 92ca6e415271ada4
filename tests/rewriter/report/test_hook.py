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


def test_one_line_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    note = Diagnosis("scheduler", Severity.NOTE, "good to know", "", 3)
    review = Diagnosis("same-noise", Severity.REVIEW, "look", "do it", 4)
    blocked = Diagnosis("no-entry-point", Severity.BLOCKED, "stop", "start it", 7)
    files = (
        file("plain.py", note),
        file("change.py", note, edits=1),
        file("look.py", note, review, edits=2),
        file("stop.py", review, blocked, edits=3),
    )
    text = hook_lines(Result(files, 9), [SourceError("bad.py", 1, "broken", "Mend it")], hint="To apply:  migrate")
    assert text.splitlines() == [
        "error: bad.py:1: broken. Mend it.",
        "change.py: would change (1 edit)",
        "look.py:4: would change (2 edits); review [same-noise] look -> do it",
        "stop.py:7: blocked [no-entry-point] stop -> start it (and 1 other finding)",
        "3 files would change, 1 file blocked, 1 file not read; 9 files checked.",
        "To apply:  migrate",
    ]


def test_the_command_says_no_more_with_hook(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "program_utils" / "before", tmp_path, dirs_exist_ok=True)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "torchlift.codemods", "--hook", "--check", "utils.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    said = done.stderr.splitlines()
    assert [line.partition(" (")[0] for line in said[:2]] == ["train.py: would change", "utils.py: would change"]
    assert said[2] == "2 files would change; 4 files checked."
    assert [line.partition(":")[0] for line in said[3:]] == ["To apply"]
