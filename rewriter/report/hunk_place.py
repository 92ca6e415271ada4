"""Where a hunk of the diff is, in words: its first line, and the function around it; of a notebook the cell."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..result import FileResult
from .inline import Numbering
from .rows import Hunk, Row, indent_of
from .text import visible

_DEFINITION = re.compile(r"\s*(?:async\s+def|def|class)\s+\w+")


def place_of_hunk(
    file: FileResult, hunk: Hunk, numbers: tuple[Numbering, Numbering], spoken: Callable[[Row], object]
) -> str:
    """The place; ``numbers`` are those of the lines before and after, and of some rows something is ``spoken``."""
    rows = hunk.rows
    old, new = numbers
    if file.source.notebook is not None:  # its cells are the same in both texts, and a line may come from another one
        return new.place(next((row.new for row in rows if row.new), 1))
    first = next((row.old for row in rows if row.old), 1)
    place = old.place(first)
    lines = file.texts[0].split("\n")
    meant = [row for row in rows if row.old and (not row.same or spoken(row))]
    inside = next((row.before for row in meant), None)
    start = next((row.old for row in meant), first)
    indent = indent_of(inside) if inside is not None else indent_of(lines[first - 1])
    for number in range(start - 1, 0, -1):
        line = lines[number - 1]
        if line.strip() and indent_of(line) < indent:
            indent = indent_of(line)
            if found := _DEFINITION.match(line):
                inner = f", in {visible(found[0].strip())}" if number < first else ""  # else the hunk shows it
                return f"{place}{inner}"
    return place
