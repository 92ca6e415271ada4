"""The summary on stderr, as a colleague would write it: what was done and why, what is left, what to expect."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ..findings import Severity
from ..result import Diagnosis, FileResult, Result
from .diff import shown
from .expect import expectations
from .rows import reasons
from .text import at_lines, counted, visible

_ORDER = (Severity.BLOCKED, Severity.REVIEW, Severity.NOTE)
_COLORS = {Severity.BLOCKED: "1;31", Severity.REVIEW: "33", Severity.NOTE: "36"}
_MANY = 6
"""From this many changed files on, each gets one line and not a list of its edits."""


class _Page:
    """Lines as wide as the reader's terminal, with headings that stand out there."""

    def __init__(self, width: int, color: bool) -> None:
        self.width = width
        self.color = color
        self.lines: list[str] = []

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.color else text

    def heading(self, text: str) -> None:
        self.lines += [*([""] if self.lines else []), self.paint(text, "1")]

    def item(self, text: str, *, first: str = "  ", rest: str = "    ", style: str = "", styled: str = "") -> None:
        """Add a paragraph; ``styled`` is the word in it that gets a colour of its own."""
        wrapped = textwrap.wrap(
            text, self.width, initial_indent=first, subsequent_indent=rest, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        if styled and self.color and wrapped:
            wrapped[0] = wrapped[0].replace(styled, self.paint(styled, style), 1)
        self.lines += wrapped


def summary(
    result: Result,
    refused: Sequence[Exception],
    *,
    verb: str = "would change",
    hint: str = "",
    width: int = 100,
    color: bool = False,
) -> str:
    """
    Return the whole text; ``refused`` are the files that could not be looked at.

    ``verb`` says what happened to the changed files (``would change``, ``changed``), ``hint`` what to run next,
    ``width`` how wide the reader's terminal is.
    """
    page = _Page(max(50, min(width, 110)), color)
    if result.changed:
        _done(page, result, verb)
    _left(page, result)
    if result.changed:
        page.heading("What changes at run time")
        for text in expectations(result):
            page.item(text, first="  - ")
    if page.lines:
        page.lines.append("")
    page.lines += [f"error: {error}" for error in refused]
    if result.files or not refused:
        page.lines.append(_total(result, len(refused), verb, hint))
    return "\n".join(page.lines) + "\n"


def _done(page: _Page, result: Result, verb: str) -> None:
    """What was edited, by file and rule."""
    page.heading("What I did" if verb == "changed" else "What I would do")
    for file in result.changed:
        name = visible(shown(file.source.path))
        blocked = ", the safe ones" if file.blocked else ""
        rules = dict.fromkeys(change.rule for change in file.changes)
        if len(result.changed) >= _MANY:
            page.item(f"{name}: {counted(len(file.changes), 'edit')} by {', '.join(rules)}", styled=name, style="1")
            continue
        page.item(f"{name}: {counted(len(file.changes), 'edit')}{blocked}", styled=name, style="1")
        for rule in rules:
            mine = [change for change in file.changes if change.rule == rule]
            told = [_told(reason, at_lines(lines, file.source.notebook)) for _, reason, lines in reasons(mine)]
            page.item(f"{rule}: {visible('; '.join(told))}", first="    ", rest="      ", styled=rule, style="33")


def _told(reason: str, place: str) -> str:
    return f"{reason} ({place})" if reason and place else reason or place


def _left(page: _Page, result: Result) -> None:
    """What the user has to look at, the gravest first."""
    found = [(file, diagnosis) for file in result.files for diagnosis in file.diagnoses]
    found.sort(key=lambda pair: _ORDER.index(pair[1].severity))
    if not found:
        if result.changed:
            page.heading("Nothing is left for you")
        return
    page.heading(f"{counted(len(found), 'thing')} left for you")
    for file, diagnosis in found:
        for line in _diagnosis(page, file, diagnosis):
            page.lines.append(line)


def _diagnosis(page: _Page, file: FileResult, diagnosis: Diagnosis) -> Iterator[str]:
    """One finding: its place first, so that a terminal can open it, and on one line, so that a program can find it."""
    name = visible(shown(file.source.path))
    place = f"{name}{file.at(diagnosis.line)}"
    word = page.paint(diagnosis.severity.value, _COLORS[diagnosis.severity])
    yield f"  {place}: {word} [{diagnosis.id}] {visible(diagnosis.message)}"
    if diagnosis.remedy:
        yield f"    -> {visible(diagnosis.remedy)}"


def _total(result: Result, errors: int, verb: str, hint: str) -> str:
    """The last line: one glance at the whole run."""
    changed = len(result.changed)
    blocked = sum(file.blocked for file in result.files)
    facts = [f"{counted(changed, 'file')} {verb}" if changed else "nothing to change"]
    facts += [f"{blocked} blocked"] if blocked else []
    facts += [f"{errors} not read"] if errors else []
    line = f"{', '.join(facts)}; {counted(result.checked, 'file')} checked."
    return f"{line} {hint}".rstrip()
