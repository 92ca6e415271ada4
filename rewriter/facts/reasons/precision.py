"""What is found of mixed precision that stays as the script has it."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst


class UnlikeBranches(NamedTuple):
    """Branches with and without mixed precision that differ in other ways, too."""

    node: cst.CSTNode


class ScaledTwice(NamedTuple):
    """A scaler that is kept, where the command line asks for another."""

    node: cst.CSTNode
    because: str
    """Why it is kept, as a phrase."""


class KeptScaler(NamedTuple):
    """A scaler that is kept."""

    node: cst.CSTNode
    because: str
    """Why, as a phrase."""
