"""What a hook says: the files that need somebody, each with its code and what to do; one line for each other file that
would change; the conclusion, and the commands to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..findings import Severity
from ..result import FileResult, Result
from .diff import shown
from .frames import frame
from .groups import FindingGroup, groups
from .summary import audit_total, files_total
from .text import counted, visible

_TOLD = (Severity.ERROR, Severity.BLOCKED, Severity.REVIEW)
"""The severities of findings that somebody has to read, the most serious first."""
_FRAMED = 10
"""The code of the most serious finding is shown for so many files."""
_OTHERS = 3
"""So many other findings of a file get a line each."""
_WIDTH = 100
"""The columns for code: a hook's output does not go to a terminal."""


def hook_lines(
    result: Result,
    refused: Sequence[Exception],
    *,
    verb: str = "would change",
    hints: Sequence[str] = (),
    encoding: str = "utf-8",
) -> str:
    """
    Return the whole text: short, because a hook runs at each commit and a preview shows the rest.

    Args:
        result: of the run.
        refused: the files that could not be looked at.
        verb: what happened to the changed files.
        hints: what to run next, one command each.
        encoding: that of the reader's terminal.
    """
    lines = [f"error: {error}" for error in refused]
    needy = _by_file(result)
    for number, found in enumerate(needy):
        lines += [""] if lines and number <= _FRAMED else []
        lines += _told(found, encoding) if number < _FRAMED else [_line(found[0])]
    changes = [line for file in result.files for line in _change(file, verb)]
    lines += [""] if lines and changes else []
    lines += changes
    lines += [""] if needy else []
    if result.files or not refused:
        total = files_total(result, len(refused), verb) if result.audited is None else audit_total(result, len(refused))
        lines += [total, *hints]
    return "".join(f"{line}\n" for line in lines)


def _by_file(result: Result) -> list[list[FindingGroup]]:
    """The findings by the file of their first place, the most serious first; those of one cause are one."""
    found: dict[int, list[FindingGroup]] = {}
    for group in groups(result):
        if group.first.severity in _TOLD:
            found.setdefault(group.members[0][0], []).append(group)
    return list(found.values())


def _told(found: Sequence[FindingGroup], encoding: str) -> Iterator[str]:
    """The findings of a file: the first with its code and what to do, some others in a line each."""
    first = found[0]
    yield _line(first)
    yield from (f"  {line}" for line in frame(first.shown(), width=_WIDTH, paint=lambda t, _: t, encoding=encoding))
    if first.first.remedy:
        yield f"  help: {visible(first.first.remedy)}"
    yield from map(_line, found[1 : _OTHERS + 1])
    if more := len(found) - 1 - _OTHERS:
        yield from [f"and {counted(more, 'other finding')} in this file"] if more > 0 else []


def _line(group: FindingGroup) -> str:
    first = group.first
    also = f" ({told})" if (told := group.also()) else ""
    return f"{group.places()[0]}: {first.severity.value} [{first.id}] {visible(group.message())}{also}"


def _change(file: FileResult, verb: str) -> Iterator[str]:
    if file.changed and not file.blocked:
        yield f"{visible(shown(file.source.path))}: {verb} ({counted(len(file.changes), 'edit')})"
