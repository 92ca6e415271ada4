"""The summary on stderr: the changes and their reasons, the findings, and what changes at run time."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ..findings import Severity
from ..result import Diagnosis, Result
from .diff import shown
from .expect import expectations
from .rows import reasons
from .text import at_lines, counted, visible

_ORDER = (Severity.ERROR, Severity.BLOCKED, Severity.REVIEW, Severity.NOTE)
_COLORS = {Severity.ERROR: "1;31", Severity.BLOCKED: "1;31", Severity.REVIEW: "33", Severity.NOTE: "36"}
_TIED = "\u00a0"
"""A space at which no line is wrapped."""
_ENDLESS = 1_000_000
"""A width that is larger than any line."""
_MANY = 6
"""If at least this many files change, each gets one line and not a list of its edits."""
_PLACES = 6
"""So many other places of a finding are named."""


class _Page:
    """Lines as wide as the reader's terminal, with headings that stand out there."""

    def __init__(self, width: int, color: bool, wraps: bool) -> None:
        self.width = width
        self.wraps = wraps
        self.color = color
        self.lines: list[str] = []

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.color else text

    def heading(self, text: str) -> None:
        self.lines += [*([""] if self.lines else []), self.paint(text, "1")]

    def entry(self, text: str, *, first: str = "", rest: str = "  ") -> None:
        """Add text that a program may search for: on one line unless it goes to a terminal."""
        width, self.width = self.width, self.width if self.wraps else _ENDLESS
        self.item(text, first=first, rest=rest)
        self.width = width

    def item(self, text: str, *, first: str = "  ", rest: str = "    ", style: str = "", styled: str = "") -> None:
        """Add a paragraph; ``styled`` is the word in it that gets its own colour."""
        wrapped = textwrap.wrap(
            text, self.width, initial_indent=first, subsequent_indent=rest, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        if styled and self.color and wrapped:
            wrapped[0] = wrapped[0].replace(styled, self.paint(styled, style), 1)
        self.lines += [line.replace(_TIED, " ") for line in wrapped]


def summary(
    result: Result,
    refused: Sequence[Exception],
    *,
    verb: str = "would change",
    hint: str = "",
    width: int = 100,
    wraps: bool = False,
    color: bool = False,
) -> str:
    """
    Return the whole text; ``refused`` are the files that could not be looked at.

    ``verb`` says what happened to the changed files (``would change``, ``changed``), ``hint`` what to run next, one
    command a line; ``width`` is the width of the reader's terminal. With ``wraps`` findings and errors are wrapped as
    well: on a terminal. Elsewhere each is on one line, so that a program can find it.
    """
    page = _Page(max(50, min(width, 110)), color, wraps)
    total = _total(result, len(refused), verb) if result.audited is None else audit_total(result, len(refused))
    if result.changed:
        _done(page, result, verb)
    if refused and page.lines:
        page.lines.append("")
    for error in refused:  # before the findings, whose remedies lead nowhere while a file of the program cannot be read
        page.entry(f"error: {error}")
    _findings(page, result)
    if result.changed:
        page.heading("What changes at run time")
        for text in expectations(result):
            page.item(text, first="  - ")
    if result.files or not refused:
        if page.lines:
            page.lines.append("")
        page.entry(total)
        for line in hint.splitlines():
            page.entry(line)
    return "\n".join(page.lines) + "\n"


def _done(page: _Page, result: Result, verb: str) -> None:
    """What was edited, by file and rule."""
    page.heading("Changes" if verb == "changed" else "Proposed changes")
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


def _findings(page: _Page, result: Result) -> None:
    """The findings, the most serious first."""
    found = [(file, diagnosis) for file in result.files for diagnosis in file.diagnoses]
    found.sort(key=lambda pair: _ORDER.index(pair[1].severity))
    if not found:
        if result.changed:
            page.heading("No action needed")
        return
    alike: dict[Diagnosis, list[str]] = {}
    for file, diagnosis in found:
        place = f"{visible(shown(file.source.path))}{file.at(diagnosis.line)}".replace(" ", _TIED)
        alike.setdefault(diagnosis._replace(line=0, column=0), []).append(place)
    page.heading(counted(len(alike), "finding"))
    for diagnosis, places in alike.items():
        _finding(page, diagnosis, list(dict.fromkeys(places)))


def _finding(page: _Page, diagnosis: Diagnosis, places: list[str]) -> None:
    """One finding: its place first, so that a terminal can open it; then the other places of which the same is said."""
    word = diagnosis.severity.value
    others, more = places[1 : _PLACES + 1], len(places) - 1 - _PLACES
    also = f" (also {', '.join(others)}" if others else ""
    also += (f" and {counted(more, 'other place')})" if more > 0 else ")") if others else ""
    text = f"{places[0]}: {word} [{diagnosis.id}] {visible(diagnosis.message)}{also}"
    start = len(page.lines)
    page.entry(text, first="  ", rest="      ")
    painted = page.paint(word, _COLORS[diagnosis.severity])
    page.lines[start] = page.lines[start].replace(f" {word} [", f" {painted} [", 1)
    if diagnosis.remedy:
        page.entry(f"-> {visible(diagnosis.remedy)}", first="    ", rest="       ")


def _total(result: Result, errors: int, verb: str) -> str:
    """The last line: the whole run in one sentence."""
    changed = len(result.changed)
    blocked = sum(file.blocked for file in result.files)
    facts = [f"{counted(changed, 'file')} {verb}" if changed else "nothing to change"]
    facts += [f"{blocked} blocked"] if blocked else []
    facts += [f"{errors} not read"] if errors else []
    return f"{', '.join(facts)}; {counted(result.checked, 'file')} checked."


def audit_total(result: Result, errors: int) -> str:
    """The last line of an audit: what is wrong, what was not followed, and how much was looked at."""
    found = [d for file in result.files for d in file.diagnoses]
    wrong = sum(d.severity is Severity.ERROR for d in found)
    reviews = sum(d.severity is Severity.REVIEW for d in found)
    notes = len(found) - wrong - reviews
    checked = counted(result.checked, "file")
    if not result.audited:
        return f"no distributed training found{f', {errors} not read' if errors else ''}; {checked} checked."
    facts = [counted(wrong, "error") if wrong else "nothing wrong was found"]
    facts += [f"{reviews} to review"] if reviews else []
    facts += [f"{notes} not followed"] if notes else []
    facts += [f"{errors} not read"] if errors else []
    return f"{', '.join(facts)}; {counted(result.audited, 'distributed program')} audited, {checked} checked."
