"""Helpers of several reports: a count with its noun, a list of lines, text without control characters."""

from __future__ import annotations

from collections.abc import Iterable

from ..source import Cells

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
    return f"line{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}" if numbers else ""


def visible(text: str) -> str:
    """Replace control characters, so that the text of a file cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)
