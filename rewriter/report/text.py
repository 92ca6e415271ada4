"""Helpers of several reports: a count with its noun, a list of lines, text without control characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from ..findings import CODE
from ..source import Cells

_HELP = "help: "
_LINES = 20
"""So many lines are named; of more, half as many, and the rest is counted."""
TIED = "\u00a0"
"""A space at which no line is wrapped."""


def counted(number: int, noun: str) -> str:
    """Return ``1 edit``, ``2 edits``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def at_lines(lines: Iterable[int], notebook: Cells | None = None) -> str:
    """Return ``line 3`` or ``lines 3, 5``, of a notebook ``cell 2, line 1; cell 4, line 3``; nothing for all of it."""
    numbers = [line for line in dict.fromkeys(lines) if line]
    if notebook is not None:
        cells: dict[int, list[int]] = {}
        for cell, line in map(notebook.place, numbers):
            cells.setdefault(cell, []).append(line)
        return "; ".join(f"{notebook.named(cell)}, {at_lines(inside)}" for cell, inside in cells.items() if cell)
    named = numbers if len(numbers) <= _LINES else numbers[: _LINES // 2]
    more = f" and {len(numbers) - len(named)} more" if len(named) < len(numbers) else ""
    return f"line{'' if len(numbers) == 1 else 's'} {', '.join(map(str, named))}{more}" if numbers else ""


def steps(remedy: str) -> Iterator[tuple[str, bool]]:
    """The lines of a remedy, each with whether it is code to write."""
    for line in remedy.split("\n"):
        yield line.strip(), line.startswith(CODE)


def helping(remedy: str) -> Iterator[tuple[str, str, str]]:
    """The lines of a remedy below a finding: each with what is before it, and before the rest where it is wrapped."""
    first, around = _HELP, " " * len(_HELP)
    for text, code in steps(remedy) if remedy else ():
        yield visible(text), around + CODE if code else first, around + 2 * CODE if code else around
        first = around


def in_a_sentence(remedy: str) -> str:
    """A remedy on one line, its code between backticks."""
    said = ""
    for code, lines in groupby(steps(remedy), lambda step: step[1]):
        joined = ("; " if code else " ").join(line for line, _ in lines)
        said += (" " if code else ". ") if said else ""
        said += f"`{joined}`" if code else joined
    return said


def visible(text: str) -> str:
    """Replace control characters, so that the text of a file cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)
