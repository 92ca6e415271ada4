"""What the command prints and writes besides the files: text, bytes, reports for machines, and the HTML page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..source import SourceError

_NARROWEST = 20
"""The second of two columns is not wrapped at fewer characters."""

if TYPE_CHECKING:
    from ..project.scan import Survey
    from ..result import FileResult, Result
    from ..verify.handover import SeenVerdict
    from .request import Request

_MANY = 5
"""Of more programs each gets one line, unless their details are asked for."""


def in_short(result: Result, survey: Survey, request: Request) -> list[list[Path]]:
    """The programs of which each gets one line, as its files; none where their details are shown."""
    told = {file.source.path for file in result.files if file.changed or file.diagnoses}
    programs = [[source.path for source in program.sources] for program in survey.programs] + survey.audited
    many = sum(not told.isdisjoint(paths) for paths in programs) > _MANY
    return programs if many and not request.details and not request.interactive else []


def summarise(
    result: Result,
    survey: Survey,
    request: Request,
    *,
    verb: str = "would change",
    hints: Sequence[str] = (),
    drawn: Sequence[FileResult] = (),
) -> None:
    """Write to stderr what was found and done, and what to run next: in short for a hook, and what was ``drawn``."""
    sys.stdout.flush()
    encoding = sys.stderr.encoding or "utf-8"
    if request.hook:
        from ..report.hook import hook_lines

        sys.stderr.write(hook_lines(result, survey.refused, verb=verb, hints=hints, encoding=encoding))
        return
    from shutil import get_terminal_size

    from ..report.summary import summary

    terminal = sys.stderr.isatty()
    sys.stderr.write(
        summary(
            result,
            survey.refused,
            verb=verb,
            hint="\n".join(hints),
            width=get_terminal_size((100, 24)).columns,
            wraps=terminal,
            color=request.color and terminal,
            encoding=encoding,
            programs=in_short(result, survey, request),
            drawn=drawn,
        )
    )


def for_machines(
    format: str,
    result: Result,
    survey: Survey,
    status: int,
    writes: bool,
    verdict: SeenVerdict | None,
    rules: Callable[[], Mapping[str, str]],
) -> str:
    """The report in the requested format; ``rules`` gives what each rule does, by id."""
    if format == "sarif":
        from importlib.metadata import version

        from ..report.sarif import sarif

        return sarif(result, survey.refused, version=version("torchlift"), rules=rules())
    if format == "github":
        from ..report.github import workflow_commands

        return workflow_commands(result, survey.refused)
    from ..report.json_report import json_report
    from ..report.verdict import unforeseen

    return json_report(
        result,
        survey.refused,
        status=status,
        written=writes,
        verdict=verdict.data if verdict else None,
        unforeseen=unforeseen(verdict) if verdict else (),
    )


def write_page(
    request: Request,
    result: Result,
    survey: Survey,
    verdict: SeenVerdict | None,
    rules: Mapping[str, str],
    hints: Sequence[str] = (),
) -> None:
    """Write the page of `--html`."""
    from ..report.html import page

    path = Path(request.html or "")
    programs = in_short(result, survey, request)
    hints = [hint for hint in hints if not hint.startswith("Details:")]  # the page shows them

    try:
        path.write_text(
            page(result, survey.refused, verdict, rules, hints, programs),
            encoding="utf-8",
        )
    except OSError as error:
        raise SourceError(path, 0, f"the page cannot be written ({error.strerror})", "Name another file") from error
    say(f"the page is {path}")


def say(line: str) -> None:
    """Write a message to stderr, with the name of the command."""
    sys.stderr.write(f"migrate: {line}\n")


def fail(line: str) -> None:
    """Write an error to stderr, as those of files are written."""
    sys.stderr.write(f"error: {line}\n")


def listed(rows: Sequence[tuple[str, str]]) -> str:
    """Two columns, each row on one line; at a terminal on as many as its width needs."""
    import textwrap
    from shutil import get_terminal_size

    first = max((len(name) for name, _ in rows), default=0) + 2
    width = get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 0
    if width < first + _NARROWEST:
        return "".join(f"{name.ljust(first)}{text}\n" for name, text in rows)
    lines = []
    for name, text in rows:
        told = textwrap.wrap(text, width - first, break_on_hyphens=False)
        lines += [f"{name.ljust(first)}{told[0]}", *(f"{'':{first}}{line}" for line in told[1:])]
    return "".join(f"{line}\n" for line in lines)


def out(text: str) -> None:
    """Write text to stdout."""
    write_bytes(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
