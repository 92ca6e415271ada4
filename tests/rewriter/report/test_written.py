"""What is said of files that were written is said at their lines of now."""

from __future__ import annotations

from pathlib import Path

from torchlift.rewriter.findings import Severity
from torchlift.rewriter.report.rows import new_lines
from torchlift.rewriter.report.summary import summary
from torchlift.rewriter.report.written import as_written
from torchlift.rewriter.result import CausePlace, Change, Diagnosis, FileResult, Result, Trait
from torchlift.rewriter.source import decode

BEFORE = b"import torch\n\nfor x in loader:\n    loss = f(x)\n    loss.backward()\n    hits += g(x)\nprint(hits)\n"
AFTER = b"import torch\nimport it\n\nfor x in loader:\n    accelerator.backward(f(x))\n    hits += g(x)\nprint(hits)\n"
CAUSE = CausePlace("each process has its own here", 3, 1, 16, "for x in loader:")


def _file() -> FileResult:
    found = Diagnosis("once", Severity.REVIEW, "`hits` differs", "reduce it", 7, 7, 11, CAUSE)
    gone = Diagnosis("backward", Severity.REVIEW, "look", "", 5, 5, 20)
    changes = (Change("backward", 5, 5, "a loss"),)
    return FileResult(decode(BEFORE, Path("a.py")), AFTER, changes, (found, gone), traits=(Trait("length", "l", 6),))


def test_findings_of_written_files_are_at_their_new_lines() -> None:
    (file,) = as_written(Result((_file(),), 1)).files
    first, second = file.diagnoses
    assert file.changed and first.cause is not None
    assert (first.line, first.column, first.end, first.cause.line) == (7, 7, 11, 4)
    assert (second.line, second.column) == (5, 0)  # the whole line that took its place
    assert (file.changes[0].line, file.traits[0].line) == (5, 6)


def test_the_code_that_is_shown_is_that_of_the_new_file() -> None:
    text = summary(as_written(Result((_file(),), 1)), [], verb="changed")
    assert "    5 |     accelerator.backward(f(x))\n" in text and "    4 | for x in loader:\n" in text


def test_a_line_that_is_gone_is_where_something_took_its_place() -> None:
    at = new_lines("a = 1\nb = 2\nc = 3\n", "c = 3\n")
    assert [at(line) for line in (0, 1, 2, 3)] == [0, 1, 1, 1]
