"""The summary on stderr: the changes and their reasons, the findings, and what changes at run time."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..findings import CODE, Severity
from ..result import FileResult, Result
from .diff import shown
from .expect import expectations
from .frames import View, error_views, frame
from .groups import FRAMED, FindingGroup, groups, placed
from .inline import CAUSE, COLORS, MARGIN, bare, short
from .rows import reasons
from .table import ProgramRow, heading, lines, rows, words
from .text import TIED, at_lines, counted, helping, visible

_ENDLESS = 1_000_000
"""A width that is larger than any line."""
_MANY = 6
"""If at least this many files change, each gets one line and not a list of its edits."""
_ERRORS = 6
"""So many files that cannot be read are named, where each program has a line; so many findings that block."""
_NARROWEST = 20
"""Lines are never wrapped at fewer columns."""
_LISTED = 200
"""If there are more findings, the others are counted by their ids."""
_WHOLE = 10
"""The sentences of so many findings are said again, whole, below the diff that shows them."""
_NARROW = 40
"""On fewer columns words are cut, and indented less."""
_FRAME = 100
"""The columns for code that does not go to a terminal."""


class _Page:
    """Lines as wide as the reader's terminal, with headings that stand out there."""

    def __init__(self, width: int, color: bool, wraps: bool, encoding: str) -> None:
        self.width = width
        self.encoding = encoding
        self.wraps = wraps
        self.color = color
        self.lines: list[str] = []

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self.color else text

    def frame(self, views: Sequence[View], styles: Mapping[str, str]) -> Iterator[str]:
        """The lines of code of some views."""
        room = (self.width if self.wraps else max(self.width, _FRAME)) - 4
        return frame(views, width=room, paint=lambda t, w: self.paint(t, styles[w]), encoding=self.encoding)

    def heading(self, text: str) -> None:
        told = textwrap.wrap(text, self.width) if self.wraps else [text]
        self.lines += [*([""] if self.lines else []), *(self.paint(line, "1") for line in told)]

    def entry(self, text: str, *, first: str = "", rest: str = "  ", style: str = "") -> None:
        """Add text that a program may search for: on one line unless it goes to a terminal."""
        width, self.width = self.width, self.width if self.wraps else _ENDLESS
        start = len(self.lines)
        self.item(text, first=first, rest=rest)
        self.width = width
        if style:
            self.lines[start:] = [self.paint(line, style) for line in self.lines[start:]]

    def item(self, text: str, *, first: str = "  ", rest: str = "    ", style: str = "", styled: str = "") -> None:
        """Add a paragraph; ``styled`` is the word in it that gets its own colour."""
        narrow = self.width < _NARROW
        if narrow:
            first, rest = (indent if indent.strip() else "  "[: len(indent)] for indent in (first, rest))
        wrapped = textwrap.wrap(
            text, self.width, initial_indent=first, subsequent_indent=rest, break_long_words=narrow,
            break_on_hyphens=False,
        )  # fmt: skip
        if styled and self.color and wrapped:
            wrapped[0] = wrapped[0].replace(styled, self.paint(styled, style), 1)
        self.lines += [line.replace(TIED, " ") for line in wrapped]


def summary(
    result: Result,
    refused: Sequence[Exception],
    *,
    verb: str = "would change",
    hint: str = "",
    width: int = 100,
    wraps: bool = False,
    color: bool = False,
    encoding: str = "utf-8",
    programs: Sequence[Sequence[Path]] = (),
    drawn: Sequence[FileResult] = (),
) -> str:
    """
    Return the whole text: the outcome first, and what to run next at the end.

    What the diff of the files that were ``drawn`` above says is said in short.

    ``refused`` are the files that could not be looked at. With ``programs``, each as its files, the script first, each
    of them gets one line.

    ``verb`` says what happened to the changed files (``would change``, ``changed``), ``hint`` what to run next, one
    command a line; ``width`` is the width of the reader's terminal. With ``wraps`` findings and errors are wrapped as
    well: on a terminal. Elsewhere each is on one line, so that a program can find it. ``encoding`` is that of the
    reader's terminal.
    """
    page = _Page(max(_NARROWEST, min(width, 110)), color, wraps, encoding)
    if result.files or not refused:
        total = outcome(result, len(refused), verb) if result.audited is None else audit_total(result, len(refused))
        page.entry(total, style="1")
    _refused(page, refused, few=bool(programs))
    if programs:
        _table(page, rows(result, programs), programs)
    else:
        _details(page, result, verb, drawn)
    if not programs:
        _stops(page, groups(result))
    if hint and result.files:
        page.lines += ["", *hint.splitlines()]  # commands to copy: a terminal wraps them by itself
    return "\n".join(page.lines) + "\n"


def _refused(page: _Page, refused: Sequence[Exception], *, few: bool) -> None:
    """The files that could not be read: before the findings, whose remedies lead nowhere while one of the program
    cannot be read."""
    if refused and page.lines:
        page.lines.append("")
    named = refused[:_ERRORS] if few else refused
    for error in named:
        page.entry(f"error: {error}")
        styles = {"primary": COLORS[Severity.ERROR], "margin": MARGIN}
        page.lines += [f"  {line}" for line in page.frame(error_views(error), styles)]
    if len(named) < len(refused):
        page.entry(f"error: {counted(len(refused) - len(named), 'other file')} cannot be read: --details names them")


def _details(page: _Page, result: Result, verb: str, drawn: Sequence[FileResult]) -> None:
    """What was edited, the findings, and what changes at run time."""
    if result.changed:
        _done(page, result, verb, drawn)
    _findings(page, result, drawn)
    told = list(expectations(result)) if result.changed else []
    if told:
        page.heading("What changes at run time")
    for text in told:
        page.item(text, first="  - ")


def _table(page: _Page, told: Sequence[ProgramRow], programs: Sequence[Sequence[Path]]) -> None:
    """One line for each program of which something is said."""
    page.heading(heading(told, programs))
    for row, line in lines(told, page.width - 2 if page.wraps else None):
        style = COLORS[row.worst] if row.worst is not None and row.word != "ready" else "32"
        page.lines.append(f"  {line.replace(row.word, page.paint(row.word, style), 1)}")


def _done(page: _Page, result: Result, verb: str, drawn: Sequence[FileResult]) -> None:
    """What was edited, by file and rule; without the reasons if they are in the diff above."""
    page.heading("Changes" if verb == "changed" else "Proposed changes")
    seen = {file.source.path for file in drawn}
    for file in result.changed:
        name = visible(shown(file.source.path))
        blocked = ", the safe ones" if file.blocked else ""
        rules = Counter(change.rule for change in file.changes)
        if len(result.changed) >= _MANY or file.source.path in seen:
            each = ", ".join(f"{rule}{TIED}{number}" for rule, number in rules.items())
            page.item(f"{name}: {counted(len(file.changes), 'edit')} ({each}){blocked}", styled=name, style="1")
            continue
        page.item(f"{name}: {counted(len(file.changes), 'edit')}{blocked}", styled=name, style="1")
        for rule, number in rules.items():
            mine = [change for change in file.changes if change.rule == rule]
            told = [_told(reason, at_lines(lines, file.source.notebook)) for _, reason, lines in reasons(mine)]
            first = f"{rule} ({number}): {visible('; '.join(told))}"
            page.item(first, first="    ", rest="      ", styled=rule, style="33")


def _told(reason: str, place: str) -> str:
    return f"{reason} ({place})" if reason and place else reason or place


def _findings(page: _Page, result: Result, drawn: Sequence[FileResult]) -> None:
    """The findings, the most serious first; those that are in the diff above on one line each."""
    found = groups(result)
    if not found:
        if result.changed:
            page.heading("No findings")
        return
    above = placed(found, drawn)
    part = "" if len(above) == len(found) else f"{len(above)} of them "
    where = f", {part}shown above at {'its line' if len(above) == 1 else 'their lines'}" if above else ""
    page.heading(f"{counted(len(found), 'finding')}{where}")
    listed = found if len(found) <= _LISTED else found[:FRAMED]
    for number, group in enumerate(sorted(listed, key=lambda group: group in above)):
        if group in above:
            named = short(group, page.width, whole=len(above) <= _WHOLE)
            page.lines += named if page.color else [bare(line) for line in named]
            continue
        if 0 < number < FRAMED:
            page.lines.append("")
        _finding(page, group, framed=number < FRAMED)
    if more := found[len(listed) :]:
        kinds = Counter(group.first.id for group in more).most_common()
        told = ", ".join(f"{count} [{id}]" for id, count in kinds)
        page.item(f"and {counted(len(more), 'other finding')}: {told}. All of them: --output-format json")


def _finding(page: _Page, group: FindingGroup, *, framed: bool) -> None:
    """One finding: its place first, so that a terminal can open it; the other places of which the same is said; the
    code; and what to do."""
    first, views = group.first, group.shown() if framed else []
    labelled = {view.place for view in views if not view.is_cause}
    head, word = group.places()[0].replace(" ", TIED), first.severity.value
    also = f" ({told})" if (told := group.also(labelled)) else ""
    message = group.message() if views else first.message
    start = len(page.lines)
    page.entry(f"{head}: {word} [{first.id}] {visible(message)}{also}", first="  ", rest="      ")
    painted = page.paint(word, COLORS[first.severity])
    page.lines[start] = page.lines[start].replace(f" {word} [", f" {painted} [", 1)
    if views:
        styles = {"primary": COLORS[first.severity], "cause": CAUSE, "margin": MARGIN}
        page.lines += [f"    {line}" for line in page.frame(views, styles)]
    for text, before, rest in helping(first.remedy):
        if before.endswith(CODE) and not before.strip():  # to be copied: a terminal wraps it by itself
            page.lines.append(f"    {before}{text}")
        else:
            page.entry(text, first=f"    {before}", rest=f"    {rest}")


def _stops(page: _Page, found: Sequence[FindingGroup]) -> None:
    """What blocks the run, in a line at the end: the findings themselves may be far above."""
    stops = [group for group in found if group.first.severity is Severity.BLOCKED]
    if not stops or len(found) == 1:
        return
    named = [f"{group.places()[0]} [{group.first.id}]".replace(" ", TIED) for group in stops[:_ERRORS]]
    more = [f"{len(stops) - _ERRORS} more"] if len(stops) > _ERRORS else []
    page.lines.append("")
    page.entry(f"Blocked by: {', '.join([*named, *more])}", rest="            ")


def outcome(result: Result, errors: int, verb: str = "would change") -> str:
    """The first line: the whole run in one sentence."""
    return f"{files_total(result, errors, verb)}{_numbers(result)}"


def files_total(result: Result, errors: int, verb: str = "would change") -> str:
    """What is said of the files of a run, in numbers: the words are the same wherever it is said."""
    blocked, changed = [file for file in result.files if file.blocked], result.changed
    partly = sum(file.changed for file in blocked)
    counts = {"blocked": len(blocked), verb: len(changed) - partly, f"{verb} in part": partly, "not read": errors}
    facts = [f"{counted(count, 'file')} {what}" for what, count in counts.items() if count]
    return f"{', '.join(facts) or 'Nothing to change'}; {counted(result.checked, 'file')} checked."


def _numbers(result: Result) -> str:
    """The edits and the findings in numbers; empty if there are none."""
    edits = sum(len(file.changes) for file in result.changed)
    facts = [counted(edits, "edit")] if edits else []
    if found := groups(result):
        facts.append(f"{counted(len(found), 'finding')} ({words(found)})")
    return f" {', '.join(facts)}." if facts else ""


def audit_total(result: Result, errors: int) -> str:
    """The first line of an audit: what is wrong, what was not followed, and how much was looked at."""
    found = [group.first.severity for group in groups(result)]
    wrong, reviews = found.count(Severity.ERROR), found.count(Severity.REVIEW)
    notes = len(found) - wrong - reviews
    checked = counted(result.checked, "file")
    if not result.audited:
        return f"No distributed training found{f', {errors} not read' if errors else ''}; {checked} checked."
    facts = [counted(wrong, "error") if wrong else "Nothing wrong was found"]
    facts += [f"{reviews} to review"] if reviews else []
    facts += [f"{notes} not followed"] if notes else []
    facts += [f"{errors} not read"] if errors else []
    return f"{', '.join(facts)}; {counted(result.audited, 'distributed program')} audited, {checked} checked."
