"""What a hook says: one line for each file that needs somebody, and the conclusion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..findings import Severity
from ..result import Diagnosis, FileResult, Result
from .diff import shown
from .text import counted, visible

_TOLD = (Severity.ERROR, Severity.BLOCKED, Severity.REVIEW)
"""The severities of findings that somebody has to read, the most serious first."""


def hook_lines(result: Result, refused: Sequence[Exception], *, verb: str = "would change", hint: str = "") -> str:
    """
    Return the whole text: short, because a hook runs at each commit and a preview shows the rest.

    Args:
        result: of the run.
        refused: the files that could not be looked at.
        verb: what happened to the changed files.
        hint: what to run next, one command a line.
    """
    lines = [f"error: {error}" for error in refused]
    lines += [line for file in result.files for line in _file(file, verb)]
    if result.files or not refused:
        lines += [_total(result, len(refused), verb), *hint.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _file(file: FileResult, verb: str) -> Iterator[str]:
    name = visible(shown(file.source.path))
    told = sorted((d for d in file.diagnoses if d.severity in _TOLD), key=lambda d: _TOLD.index(d.severity))
    parts = [f"{verb} ({counted(len(file.changes), 'edit')})"] if file.changed and not file.blocked else []
    if told:
        parts.append(_finding(told[0]) + (f" (and {counted(len(told) - 1, 'other finding')})" if told[1:] else ""))
    if parts:
        place = file.at(told[0].line) if told else ""
        yield f"{name}{place}: {'; '.join(parts)}"


def _total(result: Result, errors: int, verb: str) -> str:
    counts = {verb: len(result.changed), "blocked": sum(file.blocked for file in result.files), "not read": errors}
    facts = [f"{counted(count, 'file')} {what}" for what, count in counts.items() if count] or ["nothing to change"]
    return f"{', '.join(facts)}; {counted(result.checked, 'file')} checked."


def _finding(found: Diagnosis) -> str:
    remedy = f" -> {visible(found.remedy)}" if found.remedy else ""
    return f"{found.severity.value} [{found.id}] {visible(found.message)}{remedy}"
