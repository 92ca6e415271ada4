"""The result as workflow commands, which GitHub Actions shows beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..findings import Severity
from ..result import FileResult, Result
from ..source import SourceError
from .diff import shown
from .explaining import address, sections
from .groups import FindingGroup, groups
from .text import counted, in_a_sentence

_COMMANDS = {Severity.ERROR: "error", Severity.BLOCKED: "error", Severity.REVIEW: "warning", Severity.NOTE: "notice"}


def workflow_commands(result: Result, refused: Sequence[SourceError]) -> str:
    """
    Return one line for each file that could not be looked at, each finding and each file that would change.

    GitHub shows ten annotations of a kind and leaves out the others: so a finding is one annotation, at its first
    place, that names the others, and the most serious ones come first.
    """
    lines = [
        _line("error", shown(error.path), error.line, (0, 0), "migrate", f"{error.cause}. {error.remedy}")
        for error in refused
    ]
    found = groups(result)
    for severity in _COMMANDS:
        if severity is Severity.REVIEW:  # before them: of more than ten warnings GitHub shows the first
            lines += [line for file in result.files for line in _change(file)]
        lines += [_finding(group) for group in found if group.first.severity is severity]
    return "".join(f"{line}\n" for line in lines)


def _change(file: FileResult) -> Iterator[str]:
    if file.changed:
        rules = ", ".join(dict.fromkeys(change.rule for change in file.changes))
        text = f"{counted(len(file.changes), 'edit')} would make this file train on several processes: {rules}"
        first = min((change.line for change in file.changes if change.line), default=0)
        yield _line("warning", shown(file.source.path), file.line_of_file(first), (0, 0), "migrate", text)


def _finding(group: FindingGroup) -> str:
    file, found = group.file, group.first
    text = found.message + (f"\nhelp: {in_a_sentence(found.remedy)}" if found.remedy else "")
    if others := group.also():
        text += f"\n{others[0].upper()}{others[1:]}"
    if found.id in sections():
        text += f"\n{address('findings', found.id, found.case)}"
    columns = (found.column, found.end) if file.source.notebook is None else (0, 0)
    title = f"migrate [{found.id}]"
    return _line(
        _COMMANDS[found.severity], shown(file.source.path), file.line_of_file(found.line), columns, title, text
    )


def _line(command: str, path: str, line: int, columns: tuple[int, int], title: str, text: str) -> str:
    numbers = {"line": line, "col": columns[0], "endColumn": columns[1]}
    place = {"file": path, **{name: str(number) for name, number in numbers.items() if number}, "title": title}
    properties = ",".join(f"{key}={_property(value)}" for key, value in place.items())
    return f"::{command} {properties}::{_data(text)}"


def _data(text: str) -> str:
    """Escape characters that would end the command, or begin another one."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
