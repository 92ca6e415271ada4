"""
Rows on demand: the tables are imported when the first name is looked up, and a row is built when its name is.

A key of a table is the full name of an operation, with one star or two for any text. A name without a star is the row
of that operation; if several keys with stars fit, the one with the most letters counts. ``{"only": "classes"}`` fits
names whose last part begins with a capital letter.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...source import SourceError
from .installed import GROUP, InstalledTable, installed_tables
from .kinds.named import KINDS, Columns
from .kinds.outside import Download

Table = Mapping[str, tuple[str, Mapping[str, object]]]
"""Full names, the kind of each, and its options: the fields of the kind's class."""

BUILT_IN = (
    "torch_pointwise",
    "torch_tensors",
    "torch_methods",
    "torch_functional",
    "torch_modules",
    "torch_training",
    "distributed",
    "arrays",
    "standard_library",
    "progress",
    "libraries",
    "trackers",
)
"""The modules in ``tables``."""

Kind = TypeVar("Kind", bound=tuple[object, ...])


class ApiRow(NamedTuple):
    """What is known about an operation."""

    name: str
    """The key in the table: with a star if the row is for many names."""
    kind: str
    transfer: tuple[object, ...]
    """One of the classes in ``kinds``: what the options say. One without fields is false, so ask whether it is None."""
    columns: Columns


class _Star(NamedTuple):
    """A key with stars, split at the stars."""

    key: str
    start: str
    inside: str
    end: str
    classes: bool

    def fits(self, name: str) -> bool:
        """Whether the key fits a full name."""
        if not (name.startswith(self.start) and name.endswith(self.end)):
            return False
        if len(name) < len(self.start) + len(self.inside) + len(self.end):
            return False
        inside = name[len(self.start) : len(name) - len(self.end)]
        return self.inside in inside and (not self.classes or name.rpartition(".")[2][:1].isupper())


class _Tables(NamedTuple):
    exact: dict[str, tuple[str, Mapping[str, object]]]
    starred: tuple[_Star, ...]
    """Those with a star, the one with the most letters first."""


@cache
def row(name: str) -> ApiRow | None:
    """The row of an operation, by its full name: ``torch.nn.functional.relu``, ``torch.Tensor.sum``."""
    tables = _tables()
    if name in tables.exact and "*" not in name:
        return _row(name)
    return next((_row(star.key) for star in tables.starred if star.fits(name)), None)


def transfer(name: str, kind: type[Kind]) -> Kind | None:
    """What is known about an operation, if it is of this kind."""
    found = row(name)
    return found.transfer if found is not None and isinstance(found.transfer, kind) else None


@cache
def named(kind: type[Kind]) -> dict[str, Kind]:
    """All rows of a kind, by their full names; those with a star are not among them."""
    names = (name for name, (each, _) in _tables().exact.items() if "*" not in name and KINDS[each] is kind)
    return {
        name: made.transfer
        for name in names
        if isinstance(made := _row(name), ApiRow) and isinstance(made.transfer, kind)
    }


@cache
def packages() -> frozenset[str]:
    """The packages of which there is a row for more than what they download, and those that come with Python."""
    kinds = ((name.partition(".")[0], KINDS[kind]) for name, (kind, _) in _tables().exact.items())
    return frozenset({*sys.stdlib_module_names, *(package for package, kind in kinds if kind is not Download)})


def methods(owner: str, kind: type[tuple[object, ...]]) -> frozenset[str]:
    """The names of the methods of a class that are of a kind: of ``torch.Tensor``, of ``torch.nn.Module``."""
    return frozenset(name.removeprefix(f"{owner}.") for name in named(kind) if name.rpartition(".")[0] == owner)


@cache
def _row(key: str) -> ApiRow:
    kind, options = _tables().exact[key]
    own = {name: value for name, value in options.items() if name not in Columns._fields}
    columns = {name: value for name, value in options.items() if name in Columns._fields}
    return ApiRow(key, kind, KINDS[kind](**own), Columns(**columns))  # type: ignore[arg-type]


@cache
def _tables() -> _Tables:
    """Ours and those of other packages, as one."""
    rows: dict[str, tuple[str, Mapping[str, object]]] = {}
    for name in BUILT_IN:
        rows.update(import_module(f"{__package__}.tables.{name}").ROWS)
    for table in installed_tables():
        rows.update(_of_another(table, rows))
    keys = sorted((name for name in rows if "*" in name), key=lambda name: (-len(name.replace("*", "")), name))
    return _Tables(rows, tuple(_star(key, rows[key][1]) for key in keys))


def _star(key: str, options: Mapping[str, object]) -> _Star:
    start, *inside, end = key.split("*")
    return _Star(key, start, "".join(inside), end, options.get("only") == "classes")


def _of_another(table: InstalledTable, known: Mapping[str, object]) -> Table:
    """The rows of an entry point. Raises ``SourceError``, which says what its author has to change."""
    from .checking import check_table, line_of

    attribute = table.target.partition(":")[2].strip() or "ROWS"
    try:
        module = import_module(table.module)
        rows: Table = getattr(module, attribute)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise SourceError(
            Path(table.file),
            0,
            f"the table {table.name!r} of {GROUP} cannot be loaded: {error}",
            "Mend or uninstall the package",
        ) from error
    file = Path(module.__file__ or table.file)
    check_table(rows, file)
    twice = next((name for name in rows if name in known), None)
    if twice is not None:
        raise SourceError(file, line_of(file, twice), f"{twice} has a row already", "Remove this one")
    return rows
