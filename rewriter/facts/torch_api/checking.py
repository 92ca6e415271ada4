"""Check that a table is well formed: tables of other packages when they are loaded, ours in the tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ...source import SourceError
from .kinds.named import KINDS, Columns

_SHAPE = '"package.name": ("kind", {"option": value})'


def check_table(rows: object, file: Path) -> None:
    """Raise ``SourceError``, with file, line, cause and remedy, for the first thing that is wrong with a table."""
    if not isinstance(rows, Mapping):
        raise SourceError(file, 0, "the table of operations is no dictionary", f"Write rows like {_SHAPE}")
    for name, row in rows.items():
        for cause, remedy in _faults(name, row):
            raise SourceError(file, line_of(file, name), cause, remedy)


def line_of(file: Path, name: object) -> int:
    """The line of a row in its file, 0 if it cannot be found in the text."""
    try:
        nodes = ast.walk(ast.parse(file.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return 0
    keys = (key for node in nodes if isinstance(node, ast.Dict) for key in node.keys if isinstance(key, ast.Constant))
    return next((key.lineno for key in keys if key.value == name), 0)


def _faults(name: object, row: object) -> Iterator[tuple[str, str]]:
    """The errors of a row: pairs of cause and remedy."""
    if not isinstance(name, str) or not all(part.replace("*", "x").isidentifier() for part in name.split(".")):
        yield f"{name!r} is not the full name of an operation", "Name it as it is imported: package.module.function"
    elif name.count("*") > 2:
        yield f"{name} has more than two stars", "Name the operations one by one"
    if not isinstance(row, tuple) or len(row) != 2 or not isinstance(row[1], Mapping):
        yield f"the row of {name} is {row!r}", f"Write it like {_SHAPE}"
        return
    kind, options = row
    if kind not in KINDS:
        near = get_close_matches(str(kind), KINDS, 1)
        hint = f"Write {near[0]!r}" if near else f"Choose one of {', '.join(sorted(KINDS))}"
        yield f"the row of {name} has the kind {kind!r}, which does not exist", hint
        return
    hints = get_type_hints(KINDS[kind]) | get_type_hints(Columns)
    for option, value in options.items():
        if option not in hints:
            known = ", ".join(hints)
            yield f"the row of {name} has the option {option!r}, and {kind!r} has none of this name", f"Use {known}"
        elif not _fits(value, hints[option]):
            yield f"the option {option!r} of {name} is {value!r}", f"Give {_in_words(hints[option])}"
    if options.get("only") and "*" not in str(name):
        yield f"the row of {name} has the option 'only' and no star", "Leave the option out"


def _fits(value: object, wanted: Any) -> bool:
    if get_origin(wanted) is Literal:
        return value in get_args(wanted)
    if get_origin(wanted) is tuple:
        return isinstance(value, tuple) and all(_fits(part, get_args(wanted)[0]) for part in value)
    if get_args(wanted):  # a union
        return any(_fits(value, each) for each in get_args(wanted))
    return type(value) is wanted


def _in_words(wanted: Any) -> str:
    if get_origin(wanted) is Literal:
        return "one of " + ", ".join(map(repr, get_args(wanted)))
    names = {str: "a text", int: "a position, counted from 0", bool: "True or False"}
    return names.get(wanted, "a position, counted from 0" if wanted == int | None else "positions, as a tuple")
