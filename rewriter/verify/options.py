"""The options of ``--verify``. Nothing heavy is imported, because every start imports this module."""

from __future__ import annotations

from typing import NamedTuple


class VerifyError(Exception):
    """A verification could not be carried out. The message says what to do."""


class Asked(NamedTuple):
    """What a verification should do."""

    procs: tuple[int, ...] = (1, 2)
    steps: int = 20
    as_is: bool = False
    double: bool = False
    keep: bool = False
    limit: float = 120.0
    """The time limit of one run, in seconds."""
    python: str | None = None
    """The interpreter that imports torch."""
    device: str = ""
    """"xla": on virtual devices of torch_xla, which ``procs`` counts then."""
    arguments: tuple[str, ...] = ()
    """The arguments of the script, after ``--``."""
