"""
Which tables of other packages are installed: the entry points of the group ``torchlift.api_tables``.

The folders of ``sys.path`` are read directly: the cache needs the answer on each run, and importing
``importlib.metadata`` alone takes longer than all of this. Nothing of the packages is imported here.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import NamedTuple

GROUP = "torchlift.api_tables"


class InstalledTable(NamedTuple):
    """One entry point of the group."""

    name: str
    target: str
    """``module:attribute``."""
    file: str
    """The file that says so."""

    @property
    def module(self) -> str:
        """The module that holds the table."""
        return self.target.partition(":")[0].strip()


def installed_tables() -> tuple[InstalledTable, ...]:
    """The tables of all installed packages, in a fixed order. If a name occurs twice, the first on the path counts."""
    return _found(tuple(sys.path))


@cache
def _found(folders: tuple[str, ...]) -> tuple[InstalledTable, ...]:
    tables: dict[str, InstalledTable] = {}
    for folder in dict.fromkeys(folders):
        for table in _in_folder(folder or "."):
            tables.setdefault(table.name, table)
    return tuple(tables[name] for name in sorted(tables))


def _in_folder(folder: str) -> list[InstalledTable]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))
    except OSError:  # not a folder: a zip file, or missing
        return []
    found: list[InstalledTable] = []
    for name in names:
        file = f"{folder}/{name}/entry_points.txt"
        try:
            with open(file, "rb") as text:  # noqa: PTH123 (one for each installed package)
                data = text.read()
        except OSError:
            continue
        if GROUP.encode() in data:
            found.extend(_entries(data.decode("utf-8", "replace"), file))
    return found


def _entries(text: str, file: str) -> list[InstalledTable]:
    """The lines ``name = module:attribute`` below the heading of the group."""
    found, inside = [], False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{GROUP}]"
        elif inside and "=" in line and not line.startswith(("#", ";")):
            name, _, target = line.partition("=")
            found.append(InstalledTable(name.strip(), target.strip(), file))
    return found
