"""What ``--verify`` can be asked for. Nothing heavy is imported: it is part of every start."""

from __future__ import annotations

from typing import NamedTuple


class VerifyError(Exception):
    """A verification could not be carried out. The message says what to do."""


class Asked(NamedTuple):
    """What a verification is to do."""

    procs: tuple[int, ...] = (1, 2)
    steps: int = 20
    as_is: bool = False
    double: bool = False
    keep: bool = False
    limit: float = 120.0
    """Seconds that one run may take."""
    python: str | None = None
    """The interpreter that imports torch."""
    arguments: tuple[str, ...] = ()
    """The arguments of the script, after ``--``."""
