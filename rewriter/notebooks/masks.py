"""What stands for a line of a notebook that only the notebook understands: reports show the line itself."""

from __future__ import annotations

MASK = "#<notebook>"


def unmasked(text: str) -> str:
    """The text before `masked`."""
    return "\n".join(line.partition(MASK)[2] if MASK in line else line for line in text.split("\n"))
