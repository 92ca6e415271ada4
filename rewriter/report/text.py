"""Words that several reports share: a count with its noun, a list of lines, text that cannot steer a terminal."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, noun: str) -> str:
    """Return ``1 edit``, ``2 edits``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def at_lines(lines: Iterable[int]) -> str:
    """Return ``line 3`` or ``lines 3, 5``; nothing for the file as a whole."""
    numbers = [str(line) for line in dict.fromkeys(lines) if line]
    return f"line{'' if len(numbers) == 1 else 's'} {', '.join(numbers)}" if numbers else ""


def visible(text: str) -> str:
    """Keep control characters of a file from steering the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)
