"""
The ``--roles`` tables: what every name was taken for, what the code does, which values are equal everywhere, and what
each process holds of those that a loop over batches sets.
"""

from __future__ import annotations

from ..facts.module import LAYOUTS
from ..result import FileResult, Result
from .diff import shown


def roles_table(result: Result) -> str:
    """Return the tables of each file, their columns as wide as they need to be."""
    return "\n".join(_tables(file) for file in result.files if file.roles or file.behaviour)


_VALUES = ("equal", "local")


def _tables(file: FileResult) -> str:
    names = [(file.at(role.line)[1:], role.scope, role.name, role.role, role.because) for role in file.roles]
    told = [(file.at(b.line)[1:], b.scope, b.name, b.kind, b.because) for b in file.behaviour]
    parts = [
        _table("role", names),
        _table("step", [row for row in told if row[3] not in (*_VALUES, *LAYOUTS)]),
        _table("on all processes", [row for row in told if row[3] in _VALUES]),
        _table("layout", [row for row in told if row[3] in LAYOUTS]),
    ]
    return "\n".join([shown(file.source.path), "\n".join(part for part in parts if part)])


def _table(what: str, found: list[tuple[str, str, str, str, str]]) -> str:
    if not found:
        return ""
    rows = [("line", "scope", "name", what, "because"), *dict.fromkeys(found)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    ]
    return "".join(f"  {line}".rstrip() + "\n" for line in lines)
