"""
The code that a finding is about: its line with the part underlined, and the line where its cause is.

The terminal and the page draw the same views. Text is safe to show: control characters are spelled out, so that the
text of a file can neither control a terminal nor reorder its line.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ..notebooks.document import MASK, unmasked
from ..result import CausePlace, Diagnosis, FileResult
from ..source import SourceError
from .diff import shown
from .text import visible

_TAB = 4
_ROOM = 10
"""Code is never cut shorter than this many characters."""
_CUT = "..."
_HEAD = 16
"""So much of its beginning a line keeps where what is before the marked part has no room."""
_LONGEST = 2000
"""Of a longer line only what is around the marked part is looked at."""
Paint = Callable[[str, str], str]
"""Gives a text the style of a word: ``primary``, ``cause`` or ``margin``."""


class View(NamedTuple):
    """One line of code, and what is underlined in it."""

    place: str
    """File and line, as a finding names them."""
    number: int
    """The line as it counts in its file or cell."""
    text: str
    start: int
    end: int
    label: str
    is_cause: bool = False


def views(file: FileResult, found: Diagnosis, label: str = "") -> Iterator[View]:
    """The lines of code of a finding: that of its place, and that of its cause."""
    lines = _lines(file.source.text)
    if 0 < found.line <= len(lines) and lines[found.line - 1].strip():
        marked = _marked(*_written(lines[found.line - 1], found.column, found.end))
        yield View(place(file, found.line), _number(file, found.line), *marked, label)
    if found.cause is not None:
        yield cause_view(file, found.cause)


def error_views(error: Exception) -> list[View]:
    """The line of a file that cannot be parsed, if it is known."""
    if not isinstance(error, SourceError) or not error.code.strip():
        return []
    marked = _marked(error.code, error.column, error.column + 1)
    return [View(f"{visible(shown(error.path))}:{error.line}", error.line, *marked, "")]


@lru_cache(maxsize=16)
def _lines(text: str) -> list[str]:
    """A text is split once, however many findings it has."""
    return text.split("\n")


def cause_view(file: FileResult, cause: CausePlace) -> View:
    """The line of code where a cause is."""
    marked = _marked(*_written(cause.text, cause.column, cause.end))
    if cause.path:
        return View(f"{visible(shown(Path(cause.path)))}:{cause.line}", cause.line, *marked, cause.label, True)
    return View(place(file, cause.line), _number(file, cause.line), *marked, cause.label, True)


def _written(line: str, column: int, end: int) -> tuple[str, int, int]:
    """A line as its cell has it: of what only a notebook understands, the whole is meant."""
    return (unmasked(line), 0, 0) if MASK in line else (line, column, end)


def place(file: FileResult, line: int) -> str:
    """A place as it is spelled everywhere: ``train.py:12``, ``train.ipynb:cell 3, line 2``."""
    return f"{visible(shown(file.source.path))}{file.at(line)}"


def _number(file: FileResult, line: int) -> int:
    return line if file.source.notebook is None else file.source.notebook.place(line)[1]


def span(line: str, column: int, end: int) -> tuple[int, int]:
    """Where the marked part of a line begins and ends: without an end it is the rest of the line."""
    line = line.rstrip()
    first, last = column - 1, end - 1
    if not 0 <= first < last <= len(line):
        indent = len(line) - len(line.lstrip())
        first, last = first if indent < first < len(line) else indent, len(line)
    return first, last


def _marked(line: str, column: int, end: int) -> tuple[str, int, int]:
    """A line as it is shown, and where the marked part begins and ends in it."""
    line = line.rstrip()
    first, last = span(line, column, end)
    before, marked, after = visible(line[:first]), visible(line[first:last]), visible(line[last:])
    start = len(before.expandtabs(_TAB))
    return (before + marked + after).expandtabs(_TAB), start, len((before + marked).expandtabs(_TAB))


def frame(views: Sequence[View], *, width: int, paint: Paint, encoding: str = "utf-8") -> Iterator[str]:
    """The lines that show some views on a terminal: the code, and below it the underline and its label."""
    digits = max((len(str(view.number)) for view in views), default=0)
    here = views[0].place if views else ""
    margin = paint(f"{'':>{digits}} |", "margin")
    for view in views:
        if view.is_cause or view.place.partition(":")[0] != here.partition(":")[0]:
            yield f"{paint(' ' * digits + '-->', 'margin')} {view.place}"
        text, start, end = _shown_by(view, encoding)
        text, start, end = _cropped(text, start, end, max(width - digits - 3, _ROOM))
        style = "cause" if view.is_cause else "primary"
        yield f"{paint(f'{view.number:>{digits}} |', 'margin')} {text}".rstrip()
        sign = ("-" if view.is_cause else "^") * max(cells(text[start:end]), 1)
        blank = " " * cells(text[:start])
        label = view.label.encode(encoding, "replace").decode(encoding)
        beside = f"{blank}{sign} {label}"
        if len(beside) <= max(width - digits - 3, _ROOM) or not label:
            yield f"{margin} {blank}{paint(f'{sign} {label}'.rstrip(), style)}"
            continue
        yield f"{margin} {blank}{paint(sign, style)}"
        indent = min(len(blank), max(width - digits - 3 - 40, 0))
        for line in textwrap.wrap(label, max(width - digits - 3 - indent, _ROOM), break_on_hyphens=False):
            yield f"{margin} {' ' * indent}{paint(line, style)}"


def _shown_by(view: View, encoding: str) -> tuple[str, int, int]:
    """The text with a question mark for each character that the terminal does not know."""
    try:
        return view.text.encode(encoding, "replace").decode(encoding), view.start, view.end
    except LookupError:
        return view.text.encode("ascii", "replace").decode("ascii"), view.start, view.end


def _cropped(text: str, start: int, end: int, room: int) -> tuple[str, int, int]:
    """A line that fits, with the marked part in sight: without its indentation, else without its ends."""
    if len(text) > _LONGEST:
        first = max(start - _LONGEST // 2, 0)
        text, start, end = text[first : first + _LONGEST], start - first, min(end - first, _LONGEST)
    if cells(text) <= room:
        return text, start, end
    indent = min(len(text) - len(text.lstrip()), start)
    text, start, end = text[indent:], start - indent, end - indent
    if cells(text) <= room:
        return text, start, end
    if cells(text[:end]) > room - len(_CUT) and start > len(_CUT):
        first = start
        while first > 0 and cells(text[first - 1 : end]) + 2 * len(_CUT) <= room:
            first -= 1
        if first:
            head = text[:_HEAD] if room >= 4 * _HEAD and first > _HEAD else ""  # it names what is assigned
            while head and first < start and cells(head + text[first:end]) + 2 * len(_CUT) > room:
                first += 1
            head = head if cells(head + text[first:end]) + 2 * len(_CUT) <= room else ""
            before = head + _CUT
            text, start, end = before + text[first:], start - first + len(before), end - first + len(before)
    if cells(text) > room:
        last = len(text)
        while last > 0 and cells(text[:last]) + len(_CUT) > room:
            last -= 1
        text, end = text[:last] + _CUT, min(end, last)
    return text, start, max(end, start + 1)


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
