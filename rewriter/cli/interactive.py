"""``migrate -i``: sessions for the programs of a survey, the questions, and the result of the answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from ..project.scan import Survey
from ..project.session import TRAINING, Session
from ..report.asking import Asking
from ..report.diff import shown
from ..report.terminal import console
from ..report.text import counted
from ..result import FileResult, Result
from ..rule import Entry
from ..source import Source, SourceError


class Answers(NamedTuple):
    """What came of the questions."""

    result: Result
    """With the edits that were accepted."""
    accepted: int
    """So many groups of edits."""
    declined: tuple[str, ...]
    """The other groups: their rules, each with its first place."""
    shown: tuple[FileResult, ...] = ()
    """The files whose edits and findings were shown with the questions."""

    def told(self, written: Sequence[Source]) -> str:
        """The answers and what was done, in a sentence without its full stop."""
        groups = self.accepted + len(self.declined)
        if not written and groups and not self.accepted:
            return (
                f"nothing was written: you declined {'the edits' if groups == 1 else f'all {groups} groups of edits'}"
            )
        if not written:
            return f"nothing was written: {self.accepted} of {counted(groups, 'group')} of edits accepted"
        files = f"{shown(written[0].path)}" if len(written) == 1 else counted(len(written), "file")
        left = f"; left unchanged: {', '.join(self.declined)}" if self.declined else ""
        return f"{files} written: {self.accepted} of {counted(groups, 'group')} of edits accepted{left}"


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
    declined = [_place(session, group) for session in sessions for group in session.groups if not session.has(group)]
    files = tuple(answered.get(file.source, file) for file in result.files)
    return Answers(
        result._replace(files=files),
        sum(len(session.groups) for session in sessions) - len(declined),
        tuple(declined),
        tuple(file for file in files if file.source.path in asking.shown),
    )


def _place(session: Session, group: str) -> str:
    file, change = session.first(group)
    place = f"{shown(file.source.path)}{file.at(change.line)}"
    return f"the training in {place}" if group == TRAINING else f"{', '.join(session.rules(group))} in {place}"
