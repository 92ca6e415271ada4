"""``migrate -i``: sessions for the programs of a survey, the questions, and the result of the answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from ..project.scan import Survey
from ..project.session import Session
from ..report.asking import Asking
from ..report.diff import shown
from ..report.rows import alike, new_lines, reasons
from ..report.terminal import console
from ..report.text import counted
from ..result import Change, FileResult, Result
from ..rule import Entry
from ..source import Source, SourceError

_TOLD, _PLACES = 3, 4
"""So many reasons are told of what was declined, and so many places of each."""


class Answers(NamedTuple):
    """What came of the questions."""

    result: Result
    """With the edits that were accepted."""
    declined: tuple[tuple[FileResult, Change], ...]
    """The other edits that have a place: an import has none, and comes with what needs it."""
    asked: int
    """How many edits there were, with their imports, as the summary counts them."""
    shown: tuple[FileResult, ...] = ()
    """The files whose edits and findings were shown with the questions."""

    def told(self, written: Sequence[Source], again: str) -> str:
        """The answers and what was done, in a sentence without its full stop; ``again`` is the command that asks once
        more."""
        made = sum(len(file.changes) for file in self.result.changed if not file.blocked)
        left = max(self.asked - made, 0) if self.declined else 0
        if not written:
            every = "the edit" if left == 1 else f"all {left} edits"
            return f"nothing was written{f': you declined {every}' if left and not made else ''}"
        files = f"{shown(written[0].path)}" if len(written) == 1 else counted(len(written), "file")
        done = f"{files} written: {counted(made, 'edit')} made"
        if not left:
            return done
        return f"{done}, {left} declined. Left unchanged: {self._left()}. To be asked again: {again}"

    def _left(self) -> str:
        """What the declined edits would have prevented, each with its places."""
        told: dict[str, list[str]] = {}
        for _, reason, _ in reasons([change for _, change in self.declined]):
            told[reason] = []
        by_key = {alike(reason): places for reason, places in told.items()}
        moved = {f.source.path: new_lines(*f.texts) for f in self.result.files if f.source.notebook is None}
        for file, change in self.declined:
            line = moved[file.source.path](change.line) if file.source.path in moved else change.line
            by_key[alike(change.reason)].append(f"{shown(file.source.path)}{file.at(line)}")
        parts = [f"{reason} ({_few(list(dict.fromkeys(places)))})" for reason, places in list(told.items())[:_TOLD]]
        more = len(told) - len(parts)
        return "; ".join([*parts, *([f"and {counted(more, 'other reason')}"] if more > 0 else [])])


def _few(places: Sequence[str]) -> str:
    more = len(places) - _PLACES
    return ", ".join(places[:_PLACES]) + (f" and {more} more" if more > 0 else "")


def ask(catalogue: Sequence[Entry], survey: Survey, result: Result, *, color: bool, side_by_side: bool) -> Answers:
    """Ask at the terminal about each group of edits."""
    changed = {file.source.path for file in result.changed if not file.blocked}
    sessions = [
        Session(given.planned(catalogue))
        for given in survey.programs
        if any(source.path in changed for source in given.sources)
    ]
    asking = Asking(console(color=color), sys.stdin.readline, result, side_by_side=side_by_side)
    asking.about(sessions)
    answered: dict[Source, FileResult] = {}
    for file in (file for session in sessions for file in session.result().files):
        if answered.setdefault(file.source, file).after != file.after:
            cause = "two programs use this file, and your answers for them lead to different texts"
            raise SourceError(file.source.path, 0, cause, "Give the same answers for both; nothing was written")
    declined = tuple(
        (file, change)
        for session in sessions
        for group in session.groups
        if not session.has(group)
        for file, change in session.changes[group]
        if change.line
    )
    files = tuple(answered.get(file.source, file) for file in result.files)
    return Answers(
        result._replace(files=files),
        declined,
        sum(session.number(*session.groups) for session in sessions),
        tuple(file for file in files if file.source.path in asking.shown),
    )
