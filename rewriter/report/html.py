"""
One self-contained page: the outcome and the next commands, the verdict with its loss curves, findings, what changes at
run time, and every file's diff.

Everything that comes from the user's files is escaped. All of it can be read without JavaScript; the script adds
filters, keys and a switch for light and dark.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..findings import Severity
from ..result import FileResult, Result
from .curves import picture
from .expect import expectations
from .frames import error_views, place
from .groups import ORDER, FindingGroup, groups
from .html_diff import WEIGHTS, NumberedGroup, sheet, weight
from .html_frames import code_words, frame, meaning, option_words, path_words
from .inline import told_of
from .summary import audit_total, outcome
from .table import ProgramRow, heading, rows
from .text import counted, steps
from .verdict import not_foreseen, number_of, pointed

if TYPE_CHECKING:
    from ..source import SourceError
    from ..verify.handover import SeenRow, SeenVerdict

_ANCHOR = re.compile(r"<tr[^>]* id='(file\d+-\d+)'")
_AROUND, _LINE = 130, 21
"""The height in pixels of what is around the diff of a file, and of a line of it."""
_CODE_FIRST = re.compile(r"^(.+?) \((?=(?:lines? |[^()]*?:|cell )\d[^()]*\): )")
_PLACES = 6
"""So many places of a finding are in sight."""
_LABELS = {"safe": "safe edits", "check": "edits to check"}
"""What is said of the two kinds of edits, beside the severities of findings."""
_KEYS = "j k:next and previous change|o:open its reasons|e:open all reasons|n p:next and previous section|t:light or dark|Esc:no filters"  # noqa: E501


def page(
    result: Result,
    refused: Sequence[SourceError],
    verdict: SeenVerdict | None = None,
    rules: Mapping[str, str] | None = None,
    hints: Sequence[str] = (),
    programs: Sequence[Sequence[Path]] = (),
) -> str:
    """
    Return the page as HTML text.

    ``rules`` tells for each rule in a sentence what it does, ``hints`` are what to run next; of ``programs``, each as
    its files, the script first, each gets one line.
    """
    from .diff import shown

    names = [shown(file.source.path) for file in result.files]
    found = groups(result)
    table = rows(result, programs) if programs else []
    shown_files = [(number, file) for number, file in enumerate(result.files) if _shown(file)]
    numbers = {id(group): n for n, group in enumerate(found)}
    by_line = [
        {line: [(numbers[id(group)], group) for group in said] for line, said in told_of(file, found).items()}
        if file.changed and file.diagnoses
        else {}
        for file in result.files
    ]
    sections = [_file(number, file, names[number], rules or {}, by_line[number]) for number, file in shown_files]
    anchors = {id for section in sections for id in _ANCHOR.findall(section)}
    parts = [
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(_title(result, names))} - migrate</title><style>{_resource('page.css')}</style></head><body>",
        "<a class='skip' href='#main'>To the changes</a><div class='page'>",
        _side(result, names, found, (len(table), len(refused)), verdict),
        "<main id='main'>",
        _next(result, len(refused), verdict, hints, found),
        *([_section("verdict", "Verification", "".join(_verdict(verdict)))] if verdict is not None else []),
        *([_section("programs", heading(table, programs), _programs(table, names))] if table else []),
        _section("findings", "Findings", _listed(found, refused, result.audited, anchors)),
        *([_section("runtime", "What changes at run time", _expect(result))] if result.changed else []),
        *sections,
        f"</main></div><script>{_resource('page.js')}</script></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _title(result: Result, names: Sequence[str]) -> str:
    if result.audited is not None:
        total = audit_total(result, 0).partition("; ")[0]
        return total[:1].upper() + total[1:]
    if not result.changed:
        stopped = sum(file.blocked for file in result.files)
        return f"{counted(stopped, 'file')} blocked" if stopped else "Nothing to change"
    if result.checked == 1:
        return names[0]
    return f"{len(result.changed)} of {counted(result.checked, 'file')} would change"


def _next(
    result: Result,
    errors: int,
    verdict: SeenVerdict | None,
    hints: Sequence[str],
    found: Sequence[FindingGroup],
) -> str:
    """What came out, in a sentence or two, what blocks it, and the commands that can be copied."""
    said = [audit_total(result, errors) if result.audited is not None else outcome(result, errors)]
    said += [verdict.conclusion] if verdict is not None else []
    bad = errors or any(map(_bad, result.files)) or (verdict is not None and verdict.status)
    severities = {one.severity for file in result.files for one in file.diagnoses}
    mood = "bad" if bad else "warn" if Severity.REVIEW in severities else "fine"
    told = "".join(f"<p>{escape(text[:1].upper() + text[1:])}</p>" for text in said)
    return f"<section id='next' class='{mood}'>{told}{_stops(found)}{_commands(hints)}</section>"


def _stops(found: Sequence[FindingGroup]) -> str:
    """The findings that block, each a link."""
    stops = [(n, group) for n, group in enumerate(found) if group.first.severity is Severity.BLOCKED]
    links = [
        f"<a href='#finding{n}'>{escape(group.places()[0])}</a> <span class='chip'>{escape(group.first.id)}</span>"
        for n, group in stops[:_PLACES]
    ]
    more = f" and {len(stops) - _PLACES} more" if len(stops) > _PLACES else ""
    return f"<p class='stops'>Blocked by: {' '.join(links)}{more}</p>" if links else ""


def _commands(hints: Sequence[str]) -> str:
    """What to run next, each command so that one click marks it."""
    lines = []
    for hint in hints:
        label, colon, command = hint.partition(":")
        lines.append(
            f"<dt>{escape(label)}</dt><dd>{option_words(command.strip())}</dd>" if colon else f"<dt>{escape(hint)}</dt>"
        )
    return f"<dl class='commands'>{''.join(lines)}</dl>" if lines else ""


def _section(id: str, title: str, body: str) -> str:
    return f"<section id='{id}'><h2>{title}</h2>{body}</section>"


# The sidebar ----------------------------------------------------------------------------------------------------------


def _side(
    result: Result,
    names: Sequence[str],
    found: Sequence[FindingGroup],
    counts: tuple[int, int],
    verdict: SeenVerdict | None,
) -> str:
    """The contents and the filters; ``counts`` are those of the programs in the table and of the files in error."""
    programs, errors = counts
    edits = sum(len(file.changes) for file in result.changed)
    rules = Counter(change.rule for file in result.changed for change in file.changes)
    words = Counter(group.first.severity.value for group in found)
    words.update(weight(change) for file in result.changed for change in file.changes)
    parts = [
        "<li><a href='#verdict'><span>Verification</span></a></li>" if verdict is not None else "",
        f"<li><a href='#programs'><span>Programs</span><span>{programs}</span></a></li>" if programs else "",
        f"<li><a href='#findings'><span>Findings</span><span>{len(found) + errors}</span></a></li>",
        "<li><a href='#runtime'><span>At run time</span></a></li>" if result.changed else "",
    ]
    audited = result.audited
    looked = counted(edits, "edit") if audited is None else f"{counted(audited, 'distributed program')} audited"
    shown = [(number, file) for number, file in enumerate(result.files) if _shown(file)]
    shown.sort(key=lambda each: not _bad(each[1]))
    links = [_link(number, file, names[number], edits=audited is None) for number, file in shown]
    keys = "".join(f"<dt>{_keys(key)}</dt><dd>{text}</dd>" for key, text in (k.split(":") for k in _KEYS.split("|")))
    keys = f"<div class='scripted keys-box'><h2>Keys</h2><dl class='keys'>{keys}</dl></div>"
    return (
        f"<nav class='side' aria-label='Contents'><div><h1>{path_words(_title(result, names))}</h1>"
        f"<p class='dim'>{looked}, {counted(result.checked, 'file')} checked</p>"
        f"<ul>{''.join(parts)}</ul>"
        f"<div class='scripted'>{_filters('severity', 'Severity', words)}{_filters('rule', 'Rules', rules)}"
        "<p class='dim' id='shown' role='status'></p>"
        "<button id='clear' type='button' hidden>No filters</button></div>"
        f"<h2>Files</h2><ul class='files'>{''.join(links)}</ul>"
        f"{keys if edits else ''}"
        "<div class='tools scripted'><button id='theme' type='button'></button></div></div></nav>"
    )


def _keys(keys: str) -> str:
    return " ".join(f"<kbd>{key}</kbd>" for key in keys.split())


def _shown(file: FileResult) -> bool:
    """Whether there is something to say of a file."""
    return file.changed or bool(file.diagnoses or file.roles)


def _bad(file: FileResult) -> bool:
    return file.blocked or any(found.severity is Severity.ERROR for found in file.diagnoses)


def _link(number: int, file: FileResult, name: str, *, edits: bool) -> str:
    """A file with the number of its edits, and of its findings where it has no edits; of an audit, of its findings."""
    bad = " class='has-blocked'" if _bad(file) else ""
    findings = len({(found.id, found.message) for found in file.diagnoses})
    count = len(file.changes) if edits and (file.changed or not findings) else findings
    what = "edit" if edits and (file.changed or not findings) else "finding"
    return (
        f"<li><a href='#file{number}'{bad}><span>{path_words(name)}</span>"
        f"<span title='{counted(count, what)}'>{count if what == 'edit' else counted(count, what)}</span></a></li>"
    )


def _filters(kind: str, title: str, counts: Mapping[str, int]) -> str:
    order = [*(severity.value for severity in ORDER), *WEIGHTS]
    words = [word for word in order if word in counts] if kind == "severity" else sorted(counts)
    if len(words) < 2:
        return ""
    buttons = "".join(
        f"<button type='button' data-filter='{kind}' data-value='{escape(word)}' aria-pressed='false'>"
        f"{_LABELS.get(word, escape(word))} <b>{counts[word]}</b></button>"
        for word in words
    )
    return f"<div class='by-{kind}'><h2>{title}</h2><div class='filters'>{buttons}</div></div>"


def _programs(told: Sequence[ProgramRow], names: Sequence[str]) -> str:
    """A line for each program, which leads to its script."""
    numbers = {name: number for number, name in enumerate(names)}
    lines = []
    for row in told:
        name = (
            f"<a href='#file{numbers[row.path]}'>{path_words(row.path)}</a>"
            if row.path in numbers
            else escape(row.path)
        )
        style = row.worst.value if row.worst is not None and row.word != "ready" else "ready"
        lines.append(f"<tr class='{style}'><td>{row.word}</td><td>{name}</td><td>{escape(row.told())}</td></tr>")
    return f"<div class='scroll' tabindex='0'><table class='plain programs'>{''.join(lines)}</table></div>"


# Findings -------------------------------------------------------------------------------------------------------------


def _listed(
    found: Sequence[FindingGroup], refused: Sequence[SourceError], audited: int | None, anchors: Container[str]
) -> str:
    """The findings; ``anchors`` are the lines that the page shows."""
    errors = "".join(f"<p class='error'>{escape(str(error))}</p>{frame(error_views(error))}" for error in refused)
    if not found:
        return errors or f"<p class='good'>{'No findings' if audited is None else 'Nothing wrong was found'}.</p>"
    kinds = [(group.first.id, group.first.case) for group in found]
    first = {kind: number for number, kind in reversed(list(enumerate(kinds)))}
    items = (_finding(n, group, anchors, first[kinds[n]] == n) for n, group in enumerate(found))
    return f"{errors}<ul class='findings'>{''.join(items)}</ul>"


def _finding(number: int, group: FindingGroup, anchors: Container[str], explained: bool) -> str:
    """One finding; with ``explained`` also what its id means, which is said once."""
    first, word = group.first, group.first.severity.value
    told = (
        f"<pre>{escape(chr(10).join(text for text, _ in lines))}</pre>"
        if code
        else " ".join(code_words(text) for text, _ in lines)
        for code, lines in groupby(steps(first.remedy), lambda step: step[1])
    )
    remedy = f"<div class='remedy'>{' '.join(told)}</div>" if first.remedy else ""
    links = {
        place(file, told.line): f"#{line if (line := f'file{n}-{told.line}') in anchors else f'file{n}'}"
        for n, file, told in group.members
    }
    named = [f"<a href='{target}'>{escape(name)}</a>" for name, target in links.items()]
    places = ", ".join(named[:_PLACES])
    if more := named[_PLACES:]:
        other = counted(len(more), "other place")
        places += f" <details class='more'><summary>and {other}</summary>{', '.join(more)}</details>"
    return (
        f"<li id='finding{number}' class='finding {word}' data-severities='{word}' data-rules='{escape(first.id)}'>"
        "<div class='head'>"
        f"<span class='word'>{word}</span><span class='chip'>{escape(first.id)}</span>"
        f"<span>{places}</span></div><p>{code_words(group.message())}</p>{frame(group.shown())}{remedy}"
        f"{meaning(first.id, first.case) if explained else ''}</li>"
    )


def _expect(result: Result) -> str:
    return f"<ul class='expect'>{''.join(f'<li>{code_words(_named(text))}</li>' for text in expectations(result))}</ul>"


def _named(text: str) -> str:
    """A sentence that begins with code and its place, with signs around that code."""
    return _CODE_FIRST.sub(r"`\1` (", text) if "`" not in text.partition(" (")[0] else text


# The verdict ----------------------------------------------------------------------------------------------------------


def _verdict(verdict: SeenVerdict) -> Iterator[str]:
    if verdict.original_error:
        yield "<p class='broken'>The original script fails: there is nothing to compare the migrated script with.</p>"
        yield f"<pre>{escape(verdict.original_error)}</pre>"
        return
    yield "<table class='plain verdict'><tr><th>verdict</th><th>processes</th><th>promise</th><th>detail</th></tr>"
    for row in verdict.rows:
        style = row.outcome if row.outcome in ("held", "broken") else "untestable"
        yield (
            f"<tr><td class='{style}'>{escape(row.outcome)}</td><td>{escape(row.on)}</td>"
            f"<td>{escape(row.promise)}</td><td class='detail'>{code_words(row.detail)}{_pointed(row)}</td></tr>"
        )
    yield "</table>"
    yield f"<p class='dim'>{escape(verdict.left_out)}</p>" if verdict.left_out else ""
    curves = _curves(verdict.data)
    if curves:
        yield f"<figure>{picture(curves)}</figure>"
    notes = "".join(f"<li>{code_words(note)}</li>" for note in (*verdict.notes, *not_foreseen(verdict)))
    yield f"<p>For the comparison:</p><ul class='expect dim'>{notes}</ul>" if notes else ""


def _pointed(row: SeenRow) -> str:
    """The lines that a broken promise points to, and its likeliest cause."""
    parts = ""
    for words, at, code in pointed(row):
        line = f"<div class='row'><span class='n'>{escape(number_of(at))}</span><pre>{escape(code)}</pre></div>"
        parts += f"<span class='where'>{escape(words)}</span>{line if code else ''}"
    return (f"<div class='frame'>{parts}</div>" if parts else "") + (
        f"<p>likely cause: {code_words(row.cause)}</p>" if row.cause else ""
    )


def _curves(data: Mapping[str, Any]) -> dict[str, list[float]]:
    """The losses by run, under the names that a reader knows."""
    found = data.get("curves")
    named: dict[str, list[float]] = {}
    for run, values in found.items() if isinstance(found, dict) else ():
        name = run if run == "original" else f"migrated, on {run}"
        named[name] = [float(v) for v in values if isinstance(v, (int, float)) and math.isfinite(v)]
    return {name: values for name, values in named.items() if values}


# A file ---------------------------------------------------------------------------------------------------------------


def _file(
    number: int,
    file: FileResult,
    name: str,
    rules: Mapping[str, str],
    found: Mapping[int, Sequence[NumberedGroup]],
) -> str:
    edits = counted(len(file.changes), "edit") if file.changed else "unchanged"
    state = " <small class='word blocked'>blocked</small>" if file.blocked else ""
    body = ""
    if file.changed:
        none = "<p class='none' hidden>No change in this file fits the filters.</p>"
        body = f"<div class='sheet'>{sheet(number, file, rules, found)}</div>{none}"
    height = _AROUND + _LINE * body.count("<tr")  # about what it takes, for as long as it is out of sight
    return (
        f"<section id='file{number}' class='file' style='contain-intrinsic-height: auto {height}px'>"
        f"<h2>{path_words(name)} <small>{edits}</small>{state}</h2>"
        f"{_roles(file)}{body}</section>"
    )


def _roles(file: FileResult) -> str:
    if not file.roles:
        return ""
    lines = "".join(
        f"<tr><td>{file.at(role.line)[1:]}</td><td>{escape(role.scope)}</td><td>{escape(role.name)}</td>"
        f"<td>{escape(role.role)}</td><td>{code_words(role.because)}</td></tr>"
        for role in dict.fromkeys(file.roles)
    )
    head = "<tr><th>line</th><th>in</th><th>name</th><th>taken for</th><th>because</th></tr>"
    summary = f"<summary>What each name was taken for ({len(dict.fromkeys(file.roles))})</summary>"
    return f"<details class='roles'>{summary}<table class='plain'>{head}{lines}</table></details>"
