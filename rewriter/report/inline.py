"""A finding at its line in the diff: what is said below the code, with a bar beside it, and where the line counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..findings import Severity
from ..result import FileResult
from .frames import View, frame, span
from .groups import FindingGroup
from .text import visible

COLORS = {Severity.ERROR: "1;31", Severity.BLOCKED: "1;31", Severity.REVIEW: "33", Severity.NOTE: "36"}
CAUSE, MARGIN = "1;34", "2"
_NARROWEST = 20
"""What is said is never cut shorter than this many characters."""
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
    if first.remedy:
        for line in wrapped(f"help: {visible(first.remedy)}", width, "      "):
            yield f"{bar} {line}"


def _own(group: FindingGroup) -> View | None:
    """The line of code of the first place."""
    views = group.shown()
    return views[0] if views and not views[0].is_cause and group.first.line else None


def painted(text: str, style: str) -> str:
    """A text in the colour of a terminal."""
    return f"\x1b[{style}m{text}\x1b[0m"


def wrapped(text: str, width: int, rest: str = "  ") -> list[str]:
    """A text on lines of so many columns, those after the first indented; wide characters count as two."""
    from rich.cells import cell_len

    lines, line = list[str](), ""
    for word in text.split():
        if line.strip() and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = rest + word
        else:
            line = f"{line} {word}" if line.strip() else line + word
    return [*lines, line]


Numbering = Callable[[int], int]
"""The number that is shown for a line."""


def numberings(file: FileResult) -> tuple[Numbering, Numbering]:
    """How the lines of the two texts count: those of a notebook in their cell, and the line that begins one not at
    all."""
    notebook = file.source.notebook
    if notebook is None:
        return (lambda line: line), (lambda line: line)
    before, after = (text.split("\n") for text in file.texts)
    cells = [notebook.place(number)[0] for number in range(len(before) + 1)]
    heads = {before[n - 1] for n in range(1, len(before)) if cells[n] != cells[n - 1]}
    return _in_cells(before, heads).__getitem__, _in_cells(after, heads).__getitem__


def _in_cells(lines: Sequence[str], heads: set[str]) -> list[int]:
    """The number of each line in its cell; the list begins with line 0."""
    numbers, number = [0], 0
    for line in lines:
        number = 0 if line in heads else number + 1
        numbers.append(number)
    return numbers
