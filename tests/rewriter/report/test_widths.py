"""At 80, 100 and 140 columns no line is wider than the terminal, and no word is cut; over all fixtures."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from torchlift.codemods.catalogue import CATALOGUE
from torchlift.rewriter.cli.options import command
from torchlift.rewriter.config import RawConfig
from torchlift.rewriter.project.scan import Surveyor
from torchlift.rewriter.report import terminal
from torchlift.rewriter.report.inline import numberings
from torchlift.rewriter.report.rows import Hunk, hunks_of
from torchlift.rewriter.report.summary import summary
from torchlift.rewriter.result import FileResult, Result

pytestmark = pytest.mark.xdist_group("widths")  # one worker migrates all fixtures

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
ENTRIES = sorted([*FIXTURES.glob("*/before.py"), *FIXTURES.glob("*/before/train.py"), *FIXTURES.glob("*/before.ipynb")])
WIDTHS = (80, 100, 140)
CODE = re.compile(r"\s*\d* *(\||-->)")
ENDLESS = 1000
"""A terminal on which nothing is cut."""


@functools.cache
def results() -> tuple[Result, ...]:
    """The migration of every fixture."""
    found = []
    for entry in ENTRIES:
        survey = Surveyor(CATALOGUE, RawConfig(), cached=False).look([entry])
        found.append(Result(tuple(survey.files), survey.checked, survey.options))
    return tuple(found)


def preview(file: FileResult, width: int, *, side_by_side: bool = False) -> list[str]:
    """The lines that a terminal of that width shows of a file."""
    stream = io.StringIO()
    console = Console(file=stream, highlight=False, width=width, color_system=None)
    terminal.print_diff([file], console, side_by_side=side_by_side)
    return stream.getvalue().split("\n")


def changed() -> list[FileResult]:
    return [file for result in results() for file in result.changed]


@functools.cache
def uncut(number: int, side_by_side: bool) -> list[list[str]]:
    """The words of a changed file, where nothing is cut."""
    return words(preview(changed()[number], ENDLESS, side_by_side=side_by_side))


def words(lines: list[str]) -> list[list[str]]:
    """The words of a text in their order; of two columns, those of the left, those of the right, and the rest."""
    left, right, rest = [], [], []
    for line in lines:
        if " │ " in line:
            one, _, other = line.partition(" │ ")
            left.append(one)
            right.append(other)
        else:
            rest.append(line)
    return [re.findall(r"\w+", "\n".join(column)) for column in (left, right, rest)]


def test_there_is_something_to_look_at() -> None:
    assert len(changed()) > 30


@pytest.mark.parametrize("side_by_side", [False, True], ids=["one column", "two columns"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_preview_fits_and_cuts_no_word(width: int, side_by_side: bool) -> None:
    assert changed()
    for number, file in enumerate(changed()):
        lines = preview(file, width, side_by_side=side_by_side)
        assert max(map(len, lines)) <= width, file.source.path
        assert words(lines) == uncut(number, side_by_side), file.source.path


def test_a_cut_inside_a_word_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "_PIECE", re.compile("."))
    with pytest.raises(AssertionError):
        test_the_preview_fits_and_cuts_no_word(80, False)


@pytest.mark.parametrize("width", WIDTHS)
def test_old_and_new_line_numbers_have_a_column_each(width: int) -> None:
    for file in changed():
        for hunk in hunks_of(file):
            stream = io.StringIO()
            terminal.print_hunk(file, hunk, Console(file=stream, highlight=False, width=width, color_system=None))
            old, new = numberings(file)
            digits = len(str(max(max(old(row.old), new(row.new)) for row in hunk.rows)))
            cells = [(line[:digits], line[digits + 1 : 2 * digits + 1]) for line in stream.getvalue().split("\n")[1:]]
            shown = [(old.strip(), new.strip()) for old, new in cells if (old + new).strip(" ")]
            assert [(int(old or 0), int(new or 0)) for old, new in shown] == list(numbers(file, hunk)), file.source.path


def numbers(file: FileResult, hunk: Hunk) -> Iterator[tuple[int, int]]:
    """The old and the new number of each line, in the order of a unified diff; 0 for none. A notebook's count in their
    cell, and the line that begins one has none."""
    old, new = numberings(file)
    for block in hunk.blocks:
        if block.changed:
            listed = [(old(row.old), 0) for row in block.rows if row.old]
            listed += [(0, new(row.new)) for row in block.rows if row.new]
        else:
            listed = [(old(row.old), new(row.new)) for row in block.rows]
        yield from (pair for pair in listed if any(pair))


def told(text: str) -> list[str]:
    """The words of a summary, without the code in it, which is cut where it is too wide."""
    return [word for line in text.splitlines() if not CODE.match(line) for word in line.split()]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_summary_fits_and_cuts_no_word(width: int) -> None:
    for result in results():
        hint = "To apply:  migrate --write train.py\nTo verify: migrate train.py --verify -- ARGUMENTS"
        text = summary(result, [], hint=hint, width=width, wraps=True)
        assert told(text) == told(summary(result, [], hint=hint, width=width))
        longest = max(text.splitlines(), key=len)
        assert len(longest) <= width or len(longest.split()) == 1, longest


@pytest.mark.parametrize("width", WIDTHS)
def test_the_help_fits_and_cuts_no_word(width: int) -> None:
    def shown(width: int) -> str:
        # Click leaves two columns free, and takes 100 at most.
        with command.make_context("migrate", [], terminal_width=min(width, 100) - 2, resilient_parsing=True) as context:
            return command.get_help(context)

    assert max(map(len, shown(width).splitlines())) <= width
    assert shown(width).split() == shown(ENDLESS).split()


def test_headings_are_as_narrow_as_the_terminal() -> None:
    for result in results()[:3]:
        lines = summary(result, [], width=20, wraps=True, drawn=result.files).split("\n")
        heads = [line for line in lines if line and not line.startswith(" ")]
        assert heads and all(len(line) <= 20 for line in heads if not CODE.match(line)), heads
