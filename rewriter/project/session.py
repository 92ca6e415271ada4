"""
The user's answers about each group of edits, and the resulting program.

Nothing is asked and nothing is shown here: `report.asking` does that.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from ..findings import Severity
from ..result import Change, Diagnosis, FileResult, Result
from ..source import BOM, Source, SourceError, encode
from .three_way_merge import carried

TRAINING = "training"
_AGAIN = "-i asks about it again, --write makes it"


class PlannedProgram(Protocol):
    """A program's migration, not applied yet."""

    def result(self, declined: Collection[str] = ()) -> Result:
        """Apply the edits, without the groups that somebody declined."""


class Session:
    """
    One program: its groups, those that are accepted so far, and the texts that the user edited.

    The training's group comes first, because all others need it. A group that changes lines which the user has edited
    since then is declined automatically.
    """

    def __init__(self, plan: PlannedProgram) -> None:
        self.plan = plan
        self.whole = plan.result()
        self.changes: dict[str, list[tuple[FileResult, Change]]] = {}
        for file in self.whole.files:
            for change in file.changes:
                self.changes.setdefault(change.group, []).append((file, change))
        self.groups = sorted(self.changes, key=lambda group: group != TRAINING)
        self.accepted: set[str] = set() if TRAINING in self.changes else {TRAINING}
        self._written: list[tuple[Source, str, str]] = []

    def rules(self, *groups: str) -> list[str]:
        """The rules whose edits are in some groups."""
        return list(dict.fromkeys(change.rule for group in groups for _, change in self.changes[group]))

    def number(self, *groups: str) -> int:
        """How many edits some groups have, as the summary counts them: with the imports that they need."""
        return sum(len(self.changes[group]) for group in groups)

    def placed(self, *groups: str) -> int:
        """How many of these edits have a place: an import has none."""
        return sum(bool(change.line) for group in groups for _, change in self.changes[group])

    def first(self, group: str) -> tuple[FileResult, Change]:
        """The first edit of a group that has a place, with its file: an import has none."""
        edits = self.changes[group]
        return next(((file, change) for file, change in edits if change.line), edits[0])

    def files(self, *groups: str) -> list[Source]:
        """The files that some groups touch."""
        return list({file.source.path: file.source for group in groups for file, _ in self.changes[group]}.values())

    def needing(self, group: str) -> list[str]:
        """The groups that cannot be made without a group."""
        return [other for other in self.groups if other != TRAINING] if group == TRAINING else []

    def offered(self, *groups: str) -> list[FileResult] | None:
        """
        What some groups would do to the files as they are now: their texts before and after.

        Returns None for what cannot be made: it needs a group that was declined, or lines that the user edited.
        """
        before, after = self._texts(self.accepted), self._texts(self.accepted | {*groups})
        if before is None or after is None or TRAINING not in self.accepted | {*groups}:
            return None
        shown = []
        for file in self.whole.files:
            source = file.source
            old, new = before[source], after[source]
            # Only the training's edits are at the lines of the text that is shown: it comes first.
            changes = tuple(c for c in file.changes if c.group == TRAINING) if TRAINING in groups else ()
            if old != new:
                shown.append(
                    FileResult(
                        source._replace(data=encode(source, old), text=old, on_disk=source.text),
                        encode(source, new),
                        changes,
                    )
                )
        return shown

    def has(self, group: str) -> bool:
        """Whether a group was accepted."""
        return group in self.accepted

    def accept(self, *groups: str) -> None:
        """Accept some groups."""
        self.accepted.update(groups)

    def text(self, group: str, source: Source) -> str:
        """A file as it would be with a group."""
        texts = self._texts(self.accepted | {group})
        assert texts is not None
        return texts[source]

    def write(self, group: str, texts: Mapping[Source, str]) -> None:
        """Accept a group, with files as the user edited them, each based on ``text(group, source)``."""
        for source, text in texts.items():
            base = self.text(group, source)
            if text != base:
                self._written.append((source, base, text))
        self.accept(group)

    def result(self) -> Result:
        """The program with everything that was accepted, and a finding for each group that was not."""
        result = self._applied(self.accepted)
        texts = self._texts(self.accepted)
        assert texts is not None
        files = []
        for file in result.files:
            declined = self._declined(file.source) if TRAINING in self.accepted else ()
            after = encode(file.source, texts[file.source])
            found = sorted((*file.diagnoses, *declined), key=lambda d: (d.line, d.column))
            files.append(file._replace(after=after, diagnoses=tuple(found)))
        return result._replace(files=tuple(files))

    def _declined(self, source: Source) -> Iterator[Diagnosis]:
        for group in self.groups:
            mine = [change for file, change in self.changes[group] if file.source == source and change.line]
            for line in dict.fromkeys(change.line for change in mine if group not in self.accepted):
                left = [change for change in mine if change.line == line]
                rules, told = (dict.fromkeys(said) for said in zip(*((c.rule, c.reason) for c in left), strict=True))
                message = f"left unchanged. The edit would be made because: {'; '.join(told)} [{', '.join(rules)}]"
                yield Diagnosis("declined", Severity.REVIEW, message, _AGAIN, line, left[0].column)

    def _applied(self, accepted: set[str]) -> Result:
        return self.plan.result(set(self.groups) - accepted)

    def _texts(self, accepted: set[str]) -> dict[Source, str] | None:
        """The files' texts with some groups and the user's own changes; None if the two conflict."""
        texts = {file.source: _text(file) for file in self._applied(accepted).files}
        for source, base, mine in self._written:
            text = carried(base, mine, texts[source])
            if text is None:
                return None
            texts[source] = text
        return texts


def _text(file: FileResult) -> str:
    if file.source.notebook is not None:
        return file.source.notebook.read(file.after)
    data = file.after.removeprefix(BOM) if file.source.bom else file.after
    return data.decode(file.source.encoding)


def problem_of(text: str, source: Source) -> str:
    """Why a text cannot be the new text of a file; empty if it can."""
    try:
        if source.notebook is None:
            ast.parse(text)
        encode(source, text)
    except SyntaxError as error:
        return f"not valid Python: {error.msg}, line {error.lineno}"
    except (ValueError, SourceError) as error:
        return str(error)
    return ""
