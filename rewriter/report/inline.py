"""A finding at its line in the diff: what is said below the code, with a bar beside it, and where the line counts."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence

from ..editing.opcodes import origins
from ..findings import CODE, Severity
from ..result import FileResult
from .frames import View, cells, frame, span
from .groups import FindingGroup
from .rows import cell_name
from .table import beginning
from .text import TIED, helping, visible

COLORS = {Severity.ERROR: "1;31", Severity.BLOCKED: "1;31", Severity.REVIEW: "33", Severity.NOTE: "36"}
CAUSE, MARGIN = "1;34", "2"
_NARROWEST = 10
"""What is said is never cut shorter than this many characters."""
_SHORTEST = 12
"""The columns that the sentence of a finding gets at least where it is named in short."""
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
Told = dict[int, list[FindingGroup]]
"""The findings of a file by their lines; those of the file as a whole have line 0."""


def told_of(file: FileResult, found: Sequence[FindingGroup]) -> Told:
    """The findings whose first place is in a file."""
    told: Told = {}
    for group in found:
        if group.file.source.path == file.source.path:
            told.setdefault(group.first.line, []).append(group)
    return told


def marked(text: str, found: Sequence[FindingGroup]) -> list[tuple[int, int]]:
    """The parts of a line that findings are about, in order and apart."""
    parts: list[tuple[int, int]] = []
    for start, end in sorted(span(text, group.first.column, group.first.end) for group in found):
        if parts and start <= parts[-1][1]:
            parts[-1] = parts[-1][0], max(end, parts[-1][1])
        else:
            parts.append((start, end))
    return parts


def said(group: FindingGroup, width: int, encoding: str, *, code: bool) -> Iterator[str]:
    """
    What a finding says: its sentence, its cause, and what to do, in the colours of a terminal.

    ``code`` shows its own line as well, which is above it otherwise.
    """
    first = group.first
    bar = painted("|", COLORS[first.severity])
    width = max(width - 2, _NARROWEST)
    views = [view for view in group.shown() if code or view != _own(group)]
    seen = {view.place for view in views}
    also = group.also(seen)
    sentence = f"{first.severity.value} [{first.id}] {visible(group.message())}{f' ({also})' if also else ''}"
    word = f"{painted(first.severity.value, COLORS[first.severity])} {painted(f'[{first.id}]', '1')}"
    for number, line in enumerate(wrapped(sentence, width)):
        yield f"{bar} {line if number else line.replace(f'{first.severity.value} [{first.id}]', word, 1)}"
    styles = {"primary": COLORS[first.severity], "cause": CAUSE, "margin": MARGIN}
    for line in frame(views, width=width, paint=lambda text, style: painted(text, styles[style]), encoding=encoding):
        yield f"{bar} {line}"
    for text, before, rest in helping(first.remedy):
        lines = wrapped(before + text, width, rest) if before.strip() or not before.endswith(CODE) else [before + text]
        for line in lines:  # code is one line for who copies it: a terminal wraps it by itself
            yield f"{bar} {line}"


def short(group: FindingGroup, width: int, *, whole: bool = False) -> list[str]:
    """A finding whose code and remedy are elsewhere: its place, its id, and its ``whole`` sentence, else as much of it
    as the line has room for."""
    first, word = group.first, group.first.severity.value
    coloured = painted(word, COLORS[first.severity])
    if whole:
        head = f"  {group.places()[0].replace(' ', TIED)}: {word} [{first.id}] {visible(group.message())}"
        lines = wrapped(head, width, "      ")
        return [line.replace(f"{word} [", f"{coloured} [", 1).replace(TIED, " ") for line in lines]
    lines = wrapped(f"  {group.places()[0].replace(' ', TIED)}: {word} [{first.id}]", width, "      ")
    room = width - cells(lines[-1]) - 1
    if room >= _SHORTEST:
        lines[-1] += f" {beginning(visible(group.message()), room)}"
    return [line.replace(f"{word} [", f"{coloured} [", 1).replace(TIED, " ") for line in lines]


def _own(group: FindingGroup) -> View | None:
    """The line of code of the first place."""
    views = group.shown()
    return views[0] if views and not views[0].is_cause and group.first.line else None


def painted(text: str, style: str) -> str:
    """A text in the colour of a terminal."""
    return f"\x1b[{style}m{text}\x1b[0m"


def bare(text: str) -> str:
    """A text without the colours of a terminal."""
    return _STYLE.sub("", text)


def wrapped(text: str, width: int, rest: str = "  ") -> list[str]:
    """A text on lines of so many columns, those after the first indented; wide characters count as two."""
    lines, line = list[str](), text[: len(text) - len(text.lstrip())]
    for word in text.split(" "):
        if not word:
            continue
        if line.strip() and cells(line) + 1 + cells(word) > width:
            lines.append(line)
            line = rest + word
        else:
            line = f"{line} {word}" if line.strip() else line + word
    return [*lines, line]


class Numbering:
    """The numbers of the lines of a text as they are shown: those of a notebook count in their cell."""

    def __init__(self, text: str, heads: Container[str] | None, on_disk: str = "") -> None:
        """``heads`` are the lines at which the cells of a notebook begin; lines are counted as they are ``on_disk``,
        where the text has others already."""
        self._numbers: list[tuple[str, int]] | None = None
        self._on_disk: dict[int, int] | None = None
        if heads is None and on_disk not in ("", text):
            same = origins(on_disk.split("\n"), text.split("\n"))
            self._on_disk = {new + 1: old + 1 for new, old in same.items()}
        if heads is not None:
            self._numbers = [("", 0)]
            for line in text.split("\n"):
                cell, number = self._numbers[-1]
                self._numbers.append((line, 0) if line in heads else (cell, number + 1))

    def __call__(self, line: int) -> int:
        """The number of a line; 0 for none, and for the line that begins a cell."""
        if self._on_disk is not None:
            return self._on_disk.get(line, 0)
        return line if self._numbers is None else self._numbers[line][1]

    @property
    def counts_cells(self) -> bool:
        """Whether the lines are those of a notebook, of which one begins each cell."""
        return self._numbers is not None

    def place(self, line: int) -> str:
        """A line in words: ``line 3``, ``cell 2, line 1``."""
        if self._on_disk is not None:
            line = next((self(n) for n in range(line, 0, -1) if self(n)), line)
        if self._numbers is None:
            return f"line {line}"
        cell, number = self._numbers[line]
        return f"{cell_name(cell)}, line {max(number, 1)}"


def numberings(file: FileResult) -> tuple[Numbering, Numbering]:
    """How the lines of the two texts of a file count."""
    heads = None if file.source.notebook is None else frozenset(file.source.notebook.heads())
    before, after = file.texts
    return Numbering(before, heads, file.source.on_disk), Numbering(after, heads)
