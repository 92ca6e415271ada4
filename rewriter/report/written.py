"""The result of a run that has written its files: what is said of them is said at their lines of now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..result import CausePlace, Diagnosis, FileResult, Result
from .rows import new_lines


def as_written(result: Result) -> Result:
    """The result with the places of the new texts; a notebook keeps those of its cells, which stay where they are."""
    moved = {f.source.path: new_lines(*f.texts) for f in result.changed if f.source.notebook is None}
    return result._replace(files=tuple(_written(file, moved) for file in result.files))


def _written(file: FileResult, moved: dict[Path, Callable[[int], int]]) -> FileResult:
    """A file with its new text in the place of the first one; what it changed stays what it was."""
    path = file.source.path

    def cause_of(cause: CausePlace) -> CausePlace:
        at = moved.get(Path(cause.path) if cause.path else path)
        return cause._replace(line=at(cause.line)) if at is not None else cause

    def diagnosis_of(one: Diagnosis) -> Diagnosis:
        cause = cause_of(one.cause) if one.cause is not None else None
        line = moved[path](one.line) if path in moved else one.line
        same = path not in moved or _at(before, one.line) == _at(after, line)
        return one._replace(line=line, cause=cause, column=one.column if same else 0, end=one.end if same else 0)

    before, after = (text.split("\n") for text in file.texts)
    told = tuple(map(diagnosis_of, file.diagnoses))
    if path not in moved:
        return file._replace(diagnoses=told)
    return file._replace(
        source=file.source._replace(text=file.texts[1]),
        diagnoses=told,
        changes=tuple(one._replace(line=moved[path](one.line)) for one in file.changes),
        traits=tuple(one._replace(line=moved[path](one.line)) for one in file.traits),
    )


def _at(lines: list[str], number: int) -> str:
    return lines[number - 1] if 0 < number <= len(lines) else ""
