"""Many programs at a glance: one line each, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..findings import Severity
from ..result import FileResult, Result
from .diff import shown
from .frames import cells
from .groups import ORDER, FindingGroup, groups
from .text import counted, visible

WORDS = {Severity.ERROR: "error", Severity.BLOCKED: "blocked", Severity.REVIEW: "to review", Severity.NOTE: "note"}
_READY = "ready"
_LEAST = 20
"""The columns that a path gets at least."""


def _of(severity: Severity, number: int) -> str:
    """``1 note``, ``2 notes``, ``2 to review``."""
    return counted(number, "note") if severity is Severity.NOTE else f"{number} {WORDS[severity]}"


class ProgramRow(NamedTuple):
    """What is said of one program."""

    worst: Severity | None
    """The most serious finding; None if there is none."""
    path: str
    edits: int
    findings: tuple[tuple[Severity, int], ...]
    ids: tuple[str, ...]
    """Those of the most serious findings."""

    @property
    def word(self) -> str:
        """The state of the program."""
        if self.worst is None or (self.worst is Severity.NOTE and self.edits):
            return _READY
        return WORDS[self.worst]

    def told(self) -> str:
        """Its edits and findings, in numbers."""
        facts = [counted(self.edits, "edit")] if self.edits else []
        facts += [_of(severity, number) for severity, number in self.findings]
        return ", ".join(facts) + (f": {', '.join(self.ids)}" if self.ids else "")


def words(found: Sequence[FindingGroup]) -> str:
    """How many findings of each severity there are."""
    numbers = Counter(group.first.severity for group in found)
    return ", ".join(_of(severity, numbers[severity]) for severity in ORDER if numbers[severity])


def rows(result: Result, programs: Iterable[Sequence[Path]]) -> list[ProgramRow]:
    """A line for each program of which something is said, the worst first, else in the order of the files, that
    of the page; a file of no program has its own."""
    files = {file.source.path: file for file in result.files}
    told = [(paths[0], [files[path] for path in paths if path in files]) for paths in programs if paths]
    inside = {path for _, own in told for path in (file.source.path for file in own)}
    told += [(path, [file]) for path, file in files.items() if path not in inside]
    found = [_row(result, path, own) for path, own in told if any(file.changed or file.diagnoses for file in own)]
    return sorted(found, key=_rank)


def heading(told: Sequence[ProgramRow], programs: Iterable[Sequence[Path]]) -> str:
    """How many programs have a line, and how many others were looked at."""
    named = {row.path for row in told}
    others = sum(visible(shown(paths[0])) not in named for paths in programs if paths)
    idle = f"; {counted(others, 'other')} without edits and findings" if others else ""
    return f"{counted(len(told), 'program')}, the worst first{idle}"


def _rank(row: ProgramRow) -> int:
    return ORDER.index(row.worst) if row.worst is not None else len(ORDER)


def _row(result: Result, path: Path, files: Sequence[FileResult]) -> ProgramRow:
    found = [group.first for group in groups(result._replace(files=tuple(files)))]
    counts = Counter(diagnosis.severity for diagnosis in found)
    worst = next((severity for severity in ORDER if counts[severity]), None)
    ids = dict.fromkeys(diagnosis.id for diagnosis in found if diagnosis.severity is worst)
    edits = sum(len(file.changes) for file in files)
    numbers = tuple((severity, counts[severity]) for severity in ORDER if counts[severity])
    return ProgramRow(worst, visible(shown(path)), edits, numbers, tuple(ids))


def lines(rows: Sequence[ProgramRow], width: int | None) -> Iterator[tuple[ProgramRow, str]]:
    """The lines of a table, each with its row; as wide as ``width``, or as they are."""
    state = max((len(row.word) for row in rows), default=0)
    longest = max((cells(row.path) for row in rows), default=0)
    room = longest if width is None else min(longest, max(_LEAST, (width - state - 4) // 2))
    for row in rows:
        path = row.path if cells(row.path) <= room else _cut(row.path, room)
        line = f"{row.word:<{state}}  {path}{' ' * (room - cells(path))}  {row.told()}".rstrip()
        yield row, line if width is None else beginning(line, width)


def _cut(path: str, room: int) -> str:
    """A path without its middle, so that the name of the file stays; of a longer name the end."""
    folders, _, name = path.rpartition("/")
    left = room - cells(name) - len(".../")
    if not folders or left < 1:
        return "..." + _end(path, room - 3)
    while cells(folders) > left:
        folders = folders[:-1]
    return f"{folders}.../{name}"


def _end(text: str, room: int) -> str:
    while text and cells(text) > room:
        text = text[1:]
    return text


def beginning(text: str, room: int) -> str:
    """As much of a text as there is room for, up to the end of a word, with dots for the rest."""
    if cells(text) <= room:
        return text
    while text and cells(text) > room - 3:
        text = text[:-1]
    whole = text.rpartition(" ")[0]
    return (whole.rstrip(",;: ") if 2 * len(whole) > len(text) else text) + "..."
