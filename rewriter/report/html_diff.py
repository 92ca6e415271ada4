"""The diff of a file as a table for the page: before on the left, after on the right, the reasons above each change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise

from ..findings import Severity
from ..result import Change, FileResult
from ..source import Cells
from .colors import Span, colors
from .groups import FindingGroup
from .html_frames import code_words
from .hunk_place import place_of_hunk
from .inline import Numbering, numberings
from .rows import DiffBlock, Row, hunks_of, indent_of, is_whole, reasons
from .text import at_lines, visible

_LONG = 50
"""Longer lines may be wrapped: what is wrapped of them is indented further than the line."""
WEIGHTS = ("safe", "check")
NumberedGroup = tuple[int, FindingGroup]


def weight(change: Change) -> str:
    """The name in the filters for a safe edit, and for one that should be checked."""
    return WEIGHTS[change.severity is not Severity.NOTE]


def sheet(
    number: int, file: FileResult, rules: Mapping[str, str], found: Mapping[int, Sequence[NumberedGroup]] | None = None
) -> str:
    """Return the table; ``number`` is that of the file on the page, and ``found`` the findings by the line, each with
    its number."""
    old, new = map(colors, file.texts)
    columns = "<colgroup><col class='n'><col><col class='n'><col></colgroup>"
    numbers = numberings(file)
    parts: list[str] = []
    told = found or {}
    for n, hunk in enumerate(hunks_of(file, told=[line for line in told if line])):
        place = escape(place_of_hunk(file, hunk, numbers, lambda row: row.old in told))
        parts.append(f"<tbody data-hunk='{n}'><tr class='gap'><td colspan='4'>{place}</td></tr></tbody>")
        for block in hunk.blocks:
            parts.append(_opening(n, block))
            if block.changed:
                parts.append(_why(block.changes, rules, file.source.notebook))
            for row in block.rows:
                parts.append(_row(row, number, old, new, numbers))
                parts.extend(_said(group) for group in told.get(row.old, ()) if row.old)
            parts.append("</tbody>")
    return f"<table class='diff'>{columns}{''.join(parts)}</table>"


def _said(numbered: NumberedGroup) -> str:
    """A finding below its line, in a sentence; a link leads to all that is said of it."""
    number, group = numbered
    word, id = group.first.severity.value, escape(group.first.id)
    link = f"<a href='#finding{number}'><b class='word'>{word}</b> <span class='chip'>{id}</span></a>"
    return f"<tr class='said {word}'><td colspan='4'>{link}{code_words(group.message())}</td></tr>"


def _opening(hunk: int, block: DiffBlock) -> str:
    if not block.changed:
        return f"<tbody data-hunk='{hunk}'>"
    rules = " ".join(dict.fromkeys(change.rule for change in block.changes))
    severities = " ".join(dict.fromkeys(weight(change) for change in block.changes))
    data = f"data-hunk='{hunk}' data-rules='{escape(rules)}' data-severities='{escape(severities)}'"
    return f"<tbody class='changed' {data}>"


def _why(changes: Sequence[Change], rules: Mapping[str, str], notebook: Cells | None) -> str:
    """The rules at work and why: in short, and in full on request."""
    if not changes:
        return ""
    told = reasons(changes)
    chips = "".join(f"<span class='chip'>{escape(rule)}</span>" for rule in dict.fromkeys(rule for rule, _, _ in told))
    short = code_words("; ".join(dict.fromkeys(reason for _, reason, _ in told if reason)))
    terms = "".join(_term(rule, reason, at_lines(lines, notebook), rules) for rule, reason, lines in told)
    return (
        f"<tr class='why'><td colspan='4'><details><summary>{chips}<span class='short'>{short}</span></summary>"
        f"<dl>{terms}</dl></details></td></tr>"
    )


def _term(rule: str, reason: str, place: str, rules: Mapping[str, str]) -> str:
    where = f" <span class='dim'>{place}</span>" if place else ""
    what = f"<br><span class='dim'>{code_words(rules[rule])}</span>" if rule in rules else ""
    return f"<div><dt>{escape(rule)}{where}</dt><dd>{code_words(reason)}{what}</dd></div>"


def _row(
    row: Row,
    number: int,
    old: Mapping[int, Sequence[Span]],
    new: Mapping[int, Sequence[Span]],
    numbers: tuple[Numbering, Numbering],
) -> str:
    id = f" id='file{number}-{row.old}'" if row.old else ""
    kind = "" if row.same else " class='change'"
    before, out = row.before, row.out
    if before is not None and row.shift:
        before, out = before[row.shift :], tuple((max(a - row.shift, 0), b - row.shift) for a, b in out)
    left = _cells("old", numbers[0](row.old), before, out, old.get(row.old, ()), row.same, "del")
    right = _cells("new", numbers[1](row.new), row.after, row.into, new.get(row.new, ()), row.same, "ins")
    return f"<tr{kind}{id}>{left}{right}</tr>"


def _cells(
    side: str,
    number: int,
    text: str | None,
    marks: Sequence[tuple[int, int]],
    spans: Sequence[Span],
    same: bool,
    tag: str,
) -> str:
    if text is None:
        return f"<td class='{side} n empty'></td><td class='{side} empty'></td>"
    full = "" if same else " full"
    code = "".join(_code(text.rstrip("\r"), marks, spans, tag))
    long = len(text) > _LONG
    hang = f" style='--i:{indent_of(text.expandtabs(4))}'" if long else ""
    return (
        f"<td class='{side} n{full}'>{number or ''}</td>"
        f"<td class='{side}{full}{' long' if long else ''}'{hang}>{code}</td>"
    )


def _code(text: str, marks: Sequence[tuple[int, int]], spans: Sequence[Span], tag: str) -> Iterator[str]:
    """A line in coloured spans, with the changed words marked."""
    marks = () if is_whole(text, marks) else marks
    cuts = {0, len(text), *(edge for start, end in marks for edge in (start, end)), *(e for s in spans for e in s[:2])}
    edges = sorted(edge for edge in cuts if edge <= len(text))
    for start, end in pairwise(edges):
        piece = escape(visible(text[start:end]))
        kind = next((kind for first, last, kind in spans if first <= start and end <= last), "")
        if kind:
            piece = f"<span class='{kind}'>{piece}</span>"
        if any(first <= start and end <= last for first, last in marks):
            piece = f"<{tag}>{piece}</{tag}>"
        yield piece
