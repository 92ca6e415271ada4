"""The command with ``--audit``: report what is wrong with scripts that are distributed already. Nothing is written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size

from ..audit.ids import IDS
from ..project.audits import Auditor, wrong
from ..result import Result
from ..rule import Entry
from .output import for_machines, out, write_page
from .progress import ProgressBar
from .request import Request

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
    result = Result(tuple(survey.files), survey.checked, audited=survey.audited)
    status = _UNREAD if survey.refused else FOUND if wrong(result.files) else 0
    if request.html is not None:
        from ..audit.catalogue import RULES

        write_page(Path(request.html), result, survey, None, {rule.id: rule.summary for rule in RULES})
    if request.format != "text":
        from ..audit.catalogue import RULES

        documents = {rule.id: rule.doc for rule in RULES}
        out(for_machines(request.format, result, survey, status, False, None, lambda: documents))
        return status
    from ..report.summary import summary

    terminal = sys.stderr.isatty()
    width = get_terminal_size((100, 24)).columns
    color = request.color and terminal
    encoding = sys.stderr.encoding or "utf-8"
    sys.stderr.write(summary(result, survey.refused, width=width, wraps=terminal, color=color, encoding=encoding))
    return status
