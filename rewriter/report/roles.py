"""The ``--roles`` table: what every name was taken for, and on what evidence."""

from __future__ import annotations

from ..result import FileResult, Result
from .diff import shown


def roles_table(result: Result) -> str:
    """Return one table a file, its columns as wide as they need to be."""
    return "\n".join(_table(file) for file in result.files if file.roles)


def _table(file: FileResult) -> str:
    rows = [("line", "scope", "name", "role", "because")]
    rows += [(str(role.line), role.scope, role.name, role.role, role.because) for role in file.roles]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    ]
    return "\n".join([shown(file.source.path), *(f"  {line}".rstrip() for line in lines)]) + "\n"
