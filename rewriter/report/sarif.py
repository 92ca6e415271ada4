"""The result as SARIF 2.1.0, which code hosts and editors read: findings as results, the edits of a file as its fix."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..editing.opcodes import opcodes
from ..findings import Severity
from ..result import CausePlace, Diagnosis, FileResult, Result
from ..source import BOM, SourceError
from .diff import shown
from .explaining import address, explanation, one_sentence, sections
from .text import counted, in_a_sentence

HOME = "https://github.com/torchlift/torchlift"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
WOULD_CHANGE = "would-change"
UNREADABLE = "unreadable"
_LEVELS = {Severity.ERROR: "error", Severity.BLOCKED: "error", Severity.REVIEW: "warning", Severity.NOTE: "note"}


_ORDER = ("error", "warning", "note")


_OWN = {
    WOULD_CHANGE: "The script trains on one process, and would be changed so that it trains on several.\n\n"
    "`migrate PATH` shows the changes and the reason of each, `migrate --write PATH` makes them. The fix of the result "
    "has the same effect for its file; files of one program need the fixes of one another.",
    UNREADABLE: "The file could not be looked at, so nothing is known of it.\n\n"
    "The message says what is wrong with it, and what to do.",
}
"""Ids that are neither a rule's nor a finding's: one sentence, and what there is to do."""


def sarif(
    result: Result, refused: Sequence[SourceError], *, version: str = "", rules: Mapping[str, str] | None = None
) -> str:
    """
    Return one SARIF log with one run.

    A file that would change is a result ``would-change`` with a fix that holds all its edits, because they need each
    other: the fix has the same effect as ``--write``. A finding is a result under its own id.

    Args:
        result: of the run.
        refused: the files that could not be looked at.
        version: of torchlift.
        rules: what each rule does, by id, as Markdown that begins with a sentence: a finding may have the id of one.
    """
    results = [entry for file in result.files for entry in _file(file)]
    results += [_refused(error) for error in refused]
    results.sort(key=lambda entry: _ORDER.index(entry["level"]))
    for entry, mark in zip(results, _fingerprints(results), strict=True):
        entry["partialFingerprints"] = {"torchlift/v1": mark}
    ids = sorted({entry["ruleId"] for entry in results})
    page = "findings" if result.audited is not None else "rules"
    levels = {entry["ruleId"]: entry["level"] for entry in reversed(results)}  # the most serious of its results
    told = [_rule(id, {**_OWN, **(rules or {})}, page, levels[id]) for id in ids]
    driver = {"name": "torchlift", "informationUri": HOME, "rules": told, **({"version": version} if version else {})}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [{**entry, "ruleIndex": ids.index(entry["ruleId"])} for entry in results],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _fingerprints(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What a result is known by when lines above it come and go: its id, its file, and its sentence; the number of it
    where a file has several."""
    seen = Counter[str]()
    for entry in results:
        uri = entry["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        words = "" if entry["ruleId"] == WOULD_CHANGE else entry["message"]["text"]
        mark = sha256("\0".join([entry["ruleId"], uri, words]).encode()).hexdigest()[:16]
        seen[mark] += 1
        yield f"{mark}:{seen[mark]}"


def _rule(id: str, own: Mapping[str, str], page: str, level: str) -> dict[str, Any]:
    """What a viewer shows of an id beside each result; ``page`` is that of the documentation on those of ``own``."""
    if id in sections():
        sentence, text, markdown, page = one_sentence(id), explanation(id), sections()[id], "findings"
    elif id in own:
        text = markdown = own[id].strip()
        sentence = " ".join(text.partition("\n\n")[0].split())
    else:
        return {"id": id}
    more: dict[str, Any] = {} if id in _OWN else {"helpUri": address(page, id)}
    full = text.partition("\n\n")[2].partition("\n\n")[0] if id in sections() else text
    more |= {"fullDescription": {"text": " ".join(full.split()) or sentence}}
    more |= {"defaultConfiguration": {"level": level}}
    return {"id": id, "shortDescription": {"text": sentence}, "help": {"text": text, "markdown": markdown}, **more}


def _file(file: FileResult) -> Iterator[dict[str, Any]]:
    if file.changed:
        rules = ", ".join(dict.fromkeys(change.rule for change in file.changes))
        text = f"{counted(len(file.changes), 'edit')} would make this file train on several processes: {rules}"
        entry = _entry(WOULD_CHANGE, "warning", text, file, min((c.line for c in file.changes if c.line), default=1))
        yield {**entry, "fixes": [_fix(file)]}
    for diagnosis in file.diagnoses:
        yield _finding(file, diagnosis)


def _finding(file: FileResult, found: Diagnosis) -> dict[str, Any]:
    text = found.message + (f". Help: {in_a_sentence(found.remedy)}" if found.remedy else "")
    entry = _entry(found.id, _LEVELS[found.severity], text, file, found.line, found.column, found.end)
    if found.case and found.id in sections():
        entry["properties"] = {"case": found.case, "page": address("findings", found.id, found.case)}
    return {**entry, "relatedLocations": [_cause(file, found.cause)]} if found.cause is not None else entry


def _cause(file: FileResult, cause: CausePlace) -> dict[str, Any]:
    """Where a finding comes from: viewers show it beside the result."""
    uri = {"uri": quote(shown(Path(cause.path)))} if cause.path else _uri(file)
    line, columns = cause.line, (cause.column, cause.end)
    if file.source.notebook is not None and not cause.path:
        line, columns = file.line_of_file(line), (0, 0)
    place = _place(uri, line, *columns)
    return {**place, "message": {"text": cause.label}}


def _entry(
    id: str, level: str, text: str, file: FileResult, line: int, column: int = 0, end: int = 0
) -> dict[str, Any]:
    if file.source.notebook is not None:
        line, column, end = file.line_of_file(line), 0, 0
    place = _place(_uri(file), line, column, end)
    return {"ruleId": id, "level": level, "message": {"text": text}, "locations": [place]}


def _place(uri: Mapping[str, str], line: int, column: int, end: int = 0) -> dict[str, Any]:
    """A place; columns that are 0 are not known."""
    region = {"startLine": max(line, 1)}
    if column:
        region |= {"startColumn": column, **({"endColumn": end} if end > column else {})}
    return {"physicalLocation": {"artifactLocation": uri, "region": region}}


def _refused(error: SourceError) -> dict[str, Any]:
    place = _place({"uri": quote(shown(error.path))}, error.line, 0)
    text = f"{error.cause}. {error.remedy}".rstrip(". ")
    return {
        "ruleId": UNREADABLE,
        "level": "error",
        "message": {"text": text},
        "locations": [place],
    }


def _uri(file: FileResult) -> dict[str, str]:
    return {"uri": quote(shown(file.source.path))}


def _fix(file: FileResult) -> dict[str, Any]:
    text = "Make the training distributed (what migrate --write does)"
    changes = [{"artifactLocation": _uri(file), "replacements": list(_replacements(file))}]
    return {"description": {"text": text}, "artifactChanges": changes}


def _replacements(file: FileResult) -> Iterator[dict[str, Any]]:
    """Whole lines that are replaced. A region ends before the first character of the next line, if there is one."""
    before, after = _lines(file.source.data, file), _lines(file.after, file)
    for tag, i1, i2, j1, j2 in opcodes(before, after):
        if tag == "equal":
            continue
        ends_open = i2 == len(before) and bool(before) and not before[-1].endswith("\n")
        start = (i1 + 1, 1) if i1 < len(before) or not ends_open else (i1, len(before[-1]) + 1)
        end = (i2, len(before[-1]) + 1) if ends_open else (i2 + 1, 1)
        yield {
            "deletedRegion": {"startLine": start[0], "startColumn": start[1], "endLine": end[0], "endColumn": end[1]},
            "insertedContent": {"text": "".join(after[j1:j2])},
        }


def _lines(data: bytes, file: FileResult) -> list[str]:
    text = data.removeprefix(BOM if file.source.bom else b"").decode(file.source.encoding, "replace")
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
