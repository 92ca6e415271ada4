"""The table of many programs: one line each, the worst first, as wide as the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlift.rewriter.findings import Severity
from torchlift.rewriter.report.summary import summary
from torchlift.rewriter.report.table import beginning, heading, lines, rows
from torchlift.rewriter.result import Change, Diagnosis, FileResult, Result
from torchlift.rewriter.source import SourceError, decode

STOP = Diagnosis("local-decision", Severity.BLOCKED, "m", "r", 1)
LOOK = Diagnosis("once", Severity.REVIEW, "m", "r", 1)
NOTE = Diagnosis("batch-norm", Severity.NOTE, "m", "r", 1)


def file(name: str, *found: Diagnosis, edits: int = 0) -> FileResult:
    source = decode(b"x = 1\n", Path(name))
    changes = tuple(Change("backward", 1, 1, "because") for _ in range(edits))
    return FileResult(source, b"y = 1\n" if edits else source.data, changes, found)


FILES = (
    file("a/train.py", edits=3),
    file("b/train.py", LOOK, LOOK, edits=2),
    file("b/utils.py", NOTE, edits=1),
    file("c/train.py", NOTE, edits=1),
    file("d/train.py"),
    file("e/train.py", LOOK, STOP),
    file("f/alone.py", NOTE),
)
PROGRAMS = [[Path(name)] for name in ("a/train.py", "c/train.py", "d/train.py", "e/train.py")]
PROGRAMS.append([Path("b/train.py"), Path("b/utils.py"), Path("b/unchanged.py")])


def test_the_worst_comes_first_and_what_needs_nothing_is_left_out() -> None:
    assert [line for _, line in lines(rows(Result(FILES, 7), PROGRAMS), None)] == [
        "blocked    e/train.py  1 blocked, 1 to review: local-decision",
        "to review  b/train.py  3 edits, 1 to review, 1 note: once",
        "ready      c/train.py  1 edit, 1 note: batch-norm",
        "note       f/alone.py  1 note: batch-norm",
        "ready      a/train.py  3 edits",
    ]


def test_two_notes_are_notes() -> None:
    both = file("a/train.py", NOTE, NOTE._replace(id="grad_scaler"), edits=2)
    told = rows(Result((both,), 1), [[both.source.path]])
    assert [line for _, line in lines(told, None)] == ["ready  a/train.py  2 edits, 2 notes: batch-norm, grad_scaler"]


def test_what_needs_nothing_is_counted() -> None:
    told = rows(Result(FILES, 7), PROGRAMS)
    assert heading(told, PROGRAMS) == "5 programs, the worst first; 1 other without edits and findings"
    assert heading(told, PROGRAMS[:1]) == "5 programs, the worst first"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    deep = file("some/folders/" * 9 + "漢字🎉/train.py", *[STOP._replace(id=f"id-{n}") for n in range(20)])
    text = summary(Result((*FILES, deep), 8), [], width=width, wraps=True, programs=[*PROGRAMS, [deep.source.path]])
    from rich.cells import cell_len

    assert max(cell_len(line) for line in text.splitlines() if "the worst first" not in line) <= width
    assert "blocked" in text and ("/train.py" in text or width < 40)


def test_many_files_that_cannot_be_read_are_counted() -> None:
    errors = [SourceError(f"x{n}.py", 1, "not valid Python", "Correct it") for n in range(40)]
    text = summary(Result(FILES, 7), errors, programs=PROGRAMS)
    assert text.count("error: x") == 6 and "error: 34 other files cannot be read: --details names them\n" in text
    assert summary(Result(FILES, 7), errors).count("error: x") == 40


def test_a_path_that_is_too_long_keeps_its_beginning_and_the_name_of_its_file() -> None:
    long = file("research/vision/detection/experiments/old/train_detector.py", edits=1)
    ((_, line),) = lines(rows(Result((long,), 1), []), 80)
    assert line.split()[1].startswith("research/") and line.split()[1].endswith(".../train_detector.py")
    assert len(line) <= 80 and "1 edit" in line
    name = file(f"a/{'very_' * 12}long.py", edits=1)
    ((_, line),) = lines(rows(Result((name,), 1), []), 60)
    assert line.split()[1].startswith("...") and line.split()[1].endswith("long.py")


def test_programs_that_are_as_bad_stay_in_the_order_of_their_files() -> None:
    """The page lists its files in that order."""
    named = [file("z.py", STOP), file("b.py", edits=1), file("a.py", STOP)]
    told = rows(Result(tuple(named), 3), [[each.source.path] for each in named])
    assert [row.path for row in told] == ["z.py", "a.py", "b.py"]


def test_a_sentence_is_cut_between_its_words() -> None:
    assert beginning("the keys no longer begin with it", 20) == "the keys no..."
    assert beginning("a" * 30, 20) == "a" * 17 + "..."
