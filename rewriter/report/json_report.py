"""The result for machines: JSON with a version, so that its readers can tell when it changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..result import BehaviourReport, CausePlace, FileResult, Result, RoleReport
from ..source import SourceError
from .diff import patch, shown
from .explaining import address, sections
from .text import in_a_sentence

VERSION = 1


def json_report(
    result: Result,
    refused: Sequence[SourceError],
    *,
    status: int,
    written: bool,
    verdict: Mapping[str, Any] | None = None,
    unforeseen: Sequence[str] = (),
) -> str:
    """
    Return one JSON object.

    Its fields are described in ``docs/json.md``.
    """
    document = {
        "version": VERSION,
        "status": status,
        "checked": result.checked,
        **({"audited": result.audited} if result.audited is not None else {}),
        "options": dict(result.options),
        "files": [_file(file, written) for file in result.files],
        "errors": [
            {"path": shown(error.path), "line": error.line, "message": error.cause, "remedy": error.remedy}
            for error in refused
        ],
    }
    if verdict is not None:
        document["verification"] = verdict
        document["unforeseen"] = list(unforeseen)
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"


def _file(file: FileResult, written: bool) -> dict[str, Any]:
    return {
        "path": shown(file.source.path),
        "encoding": file.source.encoding,
        "changed": file.changed,
        "blocked": file.blocked,
        "written": written and file.changed,
        "changes": [
            {
                "rule": change.rule,
                **_place(file, change.line),
                "column": change.column,
                "reason": change.reason,
                "severity": change.severity.value,
                "group": change.group,
            }
            for change in file.changes
        ],
        "findings": [
            {
                "id": diagnosis.id,
                "case": diagnosis.case,
                "page": address("findings", diagnosis.id, diagnosis.case) if diagnosis.id in sections() else "",
                "severity": diagnosis.severity.value,
                **_place(file, diagnosis.line),
                "column": diagnosis.column,
                "end_column": diagnosis.end,
                "message": diagnosis.message,
                "remedy": in_a_sentence(diagnosis.remedy),
                "cause": _cause(file, diagnosis.cause) if diagnosis.cause is not None else None,
            }
            for diagnosis in file.diagnoses
        ],
        "roles": [_role(file, role) for role in file.roles],
        "behaviour": [_behaviour(file, told) for told in file.behaviour],
        "traits": [{"kind": trait.kind, "name": trait.name, **_place(file, trait.line)} for trait in file.traits],
        "diff": patch(file.source.path, file.source.data, file.after).decode(file.source.encoding, "replace"),
    }


def _cause(file: FileResult, cause: CausePlace) -> dict[str, Any]:
    """Where a finding comes from: in the same file, or in another one."""
    path = shown(Path(cause.path) if cause.path else file.source.path)
    place = {"line": cause.line} if cause.path else _place(file, cause.line)
    return {"path": path, **place, "column": cause.column, "end_column": cause.end, "label": cause.label}


def _behaviour(file: FileResult, told: BehaviourReport) -> dict[str, Any]:
    place = _place(file, told.line)
    return {"name": told.name, "scope": told.scope, "kind": told.kind, "because": told.because, **place}


def _role(file: FileResult, role: RoleReport) -> dict[str, Any]:
    said = {"name": role.name, "scope": role.scope, "role": role.role, "because": role.because}
    return {**said, **_place(file, role.line)}


def _place(file: FileResult, line: int) -> dict[str, int]:
    """The line; for a notebook the cell and the line in it."""
    if file.source.notebook is None:
        return {"line": line}
    cell, line = file.source.notebook.place(line)
    return {"cell": cell, "line": line}
