"""What the command prints and writes besides the files: text, bytes, reports for machines, and the HTML page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..source import SourceError

if TYPE_CHECKING:
    from ..project.scan import Survey
    from ..result import Result
    from ..verify.handover import SeenVerdict


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
    path: Path,
    result: Result,
    survey: Survey,
    verdict: SeenVerdict | None,
    rules: Mapping[str, str],
    hints: Sequence[str] = (),
) -> None:
    """Write the page of `--html`."""
    from ..report.html import page

    try:
        path.write_text(
            page(result, survey.refused, verdict, rules, hints),
            encoding="utf-8",
        )
    except OSError as error:
        raise SourceError(path, 0, f"the page cannot be written ({error.strerror})", "Name another file") from error
    say(f"the page is {path}")


def say(line: str) -> None:
    """Write a message to stderr, with the name of the command."""
    sys.stderr.write(f"migrate: {line}\n")


def out(text: str) -> None:
    """Write text to stdout."""
    write_bytes(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


def write_bytes(data: bytes) -> None:
    """Write bytes to stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
