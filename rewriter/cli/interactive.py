"""``migrate -i``: sessions for the programs of a survey, the questions, and the result of the answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..project.scan import Survey
from ..project.session import Session
from ..report.asking import Asking
from ..report.terminal import console
from ..result import FileResult, Result
from ..rule import Entry
from ..source import Source, SourceError


def ask(catalogue: Sequence[Entry], survey: Survey, result: Result, *, color: bool, side_by_side: bool) -> Result:
    """Ask at the terminal, and return the result with the edits that were accepted."""
    changed = {file.source.path for file in result.changed if not file.blocked}
    sessions = [
        Session(given.planned(catalogue))
        for given in survey.programs
        if any(source.path in changed for source in given.sources)
    ]
    Asking(console(color=color), sys.stdin.readline, side_by_side=side_by_side).about(sessions)
    answered: dict[Source, FileResult] = {}
    for file in (file for session in sessions for file in session.result().files):
        if answered.setdefault(file.source, file).after != file.after:
            cause = "two programs use this file, and your answers for them lead to different texts"
            raise SourceError(file.source.path, 0, cause, "Give the same answers for both; nothing was written")
    return result._replace(files=tuple(answered.get(file.source, file) for file in result.files))
