"""The command with ``--audit``: report what is wrong with scripts that are distributed already. Nothing is written."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..audit.ids import IDS
from ..project.audits import Auditor, wrong
from ..report.groups import ORDER
from ..result import Result
from ..rule import Entry
from .output import for_machines, in_short, out, summarise, write_page
from .progress import ProgressBar
from .request import Request

if TYPE_CHECKING:
    from ..project.scan import Survey

FOUND = 1
"""The exit status if something is wrong."""
_UNREAD = 3


def run_audit(catalogue: Sequence[Entry], request: Request) -> int:
    """Audit the programs of a command, report, and return the exit status."""
    auditor = Auditor([*IDS, *(entry.id for entry in catalogue)], request.options)
    if request.paths == ("-",):
        survey = auditor.look_at(sys.stdin.buffer.read(), "<stdin>")
    else:
        paths = [Path(path) for path in request.paths]
        with ProgressBar(sys.stderr) as progress:
            survey = auditor.look(paths, progress, follows=request.follow, hook=request.hook)
    result = Result(tuple(survey.files), survey.checked, audited=len(survey.audited))
    status = _UNREAD if survey.refused else FOUND if wrong(result.files) else 0
    hints = list(_hints(result, survey, request))
    if request.html is not None:
        from ..audit.catalogue import RULES

        sentences = {rule.id: rule.summary for rule in RULES}
        write_page(request, result, survey, None, sentences, hints)
    if request.format != "text":
        from ..audit.catalogue import RULES

        documents = {rule.id: rule.doc for rule in RULES}
        out(for_machines(request.format, result, survey, status, False, None, lambda: documents))
        return status
    summarise(result, survey, request, hints=hints)
    return status


def _hints(result: Result, survey: Survey, request: Request) -> Iterator[str]:
    """The commands to run next, each on its own line."""
    from .invoked import chosen, details, invoked

    command = " ".join([invoked(), "--audit", *chosen(request.options)])
    if in_short(result, survey, request) and not request.hook:
        yield details(command, request.paths)
    found = sorted((d for file in result.files for d in file.diagnoses), key=lambda d: ORDER.index(d.severity))
    if found:
        yield f"To learn more: {invoked()} --explain {found[0].id}"
