"""What a hook says: a line for each file, with what stops it, or its edits and what is to review; the conclusion, and
the commands to run, of which one explains the first of what stops a file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ..findings import Severity
from ..result import FileResult, Result
from .diff import shown
from .frames import error_views, frame
from .groups import FindingGroup, groups
from .inline import bare, short
from .summary import audit_total, files_total
from .text import counted, visible

_STOPS = (Severity.ERROR, Severity.BLOCKED)
"""The severities of findings that stop a file."""
_OTHERS = 3
"""So many other findings of a file that stop it get a line each."""
_WIDTH = 100
"""The columns of all lines: a hook's output does not go to a terminal."""


def hook_lines(
    result: Result,
    refused: Sequence[Exception],
    *,
    verb: str = "would change",
    hints: Sequence[str] = (),
    encoding: str = "utf-8",
) -> str:
    """
    Return the whole text: short, because a hook runs at each commit and a preview shows the rest.

    Args:
        result: of the run.
        refused: the files that could not be looked at.
        verb: what happened to the changed files.
        hints: what to run next, one command each.
        encoding: that of the reader's terminal.
    """
    lines = [line for error in refused for line in _error(error, encoding)]
    found = groups(result)
    stops = _by_file([group for group in found if group.first.severity in _STOPS])
    lines += [line for told in stops for line in _line(told[0], others=len(told) - 1)]
    reviews = _by_file([group for group in found if group.first.severity is Severity.REVIEW])
    others = [line for file in result.files for line in _other(file, reviews, verb)]
    lines += others
    lines += [""] if stops else []
    if result.files or not refused:
        total = files_total(result, len(refused), verb) if result.audited is None else audit_total(result, len(refused))
        lines += [total, *hints]
    return "".join(f"{line}\n" for line in lines)


def _error(error: Exception, encoding: str) -> Iterator[str]:
    yield from _wrapped(f"error: {error}")
    views = error_views(error)
    yield from (f"  {line}" for line in frame(views, width=_WIDTH, paint=lambda t, _: t, encoding=encoding))


def _by_file(found: Sequence[FindingGroup]) -> list[list[FindingGroup]]:
    """Findings by the file of their first place, the most serious first; those of one cause are one."""
    files: dict[int, list[FindingGroup]] = {}
    for group in found:
        files.setdefault(group.members[0][0], []).append(group)
    return list(files.values())


def _lines(found: Sequence[FindingGroup]) -> Iterator[str]:
    """Some findings of a file in a line each, and how many others there are."""
    yield from (line for group in found[:_OTHERS] for line in _line(group))
    if len(found) > _OTHERS:
        yield f"and {counted(len(found) - _OTHERS, 'other finding')} in this file"


def _line(group: FindingGroup, others: int = 0) -> list[str]:
    """A finding in a line, with how many ``others`` its file has."""
    first = group.first
    facts = [group.also(), f"and {counted(others, 'other finding')} in this file" if others else ""]
    also = f" ({told})" if (told := "; ".join(filter(None, facts))) else ""
    return _wrapped(f"{group.places()[0]}: {first.severity.value} [{first.id}] {visible(group.message())}{also}")


def _other(file: FileResult, reviews: Sequence[Sequence[FindingGroup]], verb: str) -> Iterator[str]:
    """What else is said of a file: that it changes, and how much of it somebody should look at."""
    changes = file.changed and not file.blocked
    facts = [f"{verb} ({counted(len(file.changes), 'edit')})"] if changes else []
    mine = next((found for found in reviews if found[0].file is file), [])
    ids = ", ".join(dict.fromkeys(group.first.id for group in mine))
    facts += [f"{len(mine)} to review [{ids}]"] if mine else []
    if facts:
        yield from _wrapped(f"{visible(shown(file.source.path))}: {', '.join(facts)}")
    if verb == "changed":  # a preview of what was written does not find them again
        yield from (f"  {line}" for line in _lines(mine))
    else:
        yield from (bare(line) for group in mine[:_OTHERS] for line in short(group, _WIDTH))
        if len(mine) > _OTHERS:
            yield f"  and {counted(len(mine) - _OTHERS, 'other finding')} in this file"


def _wrapped(text: str, first: str = "", rest: str = "    ") -> list[str]:
    """A text on lines that fit; a word is never broken."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
