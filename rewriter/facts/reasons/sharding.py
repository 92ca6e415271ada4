"""What is found of weights that are sharded over the processes."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

import libcst as cst


class OnShards(Enum):
    """What a script does with weights that does not work once they are sharded."""

    JOINED_WEIGHTS = auto()
    COPIED_MODEL = auto()
    SAVED_OBJECT = auto()
    FOLLOWED_MODEL = auto()
    PYTHON_NUMBERS = auto()
    HANDED_WEIGHT = auto()
    WHOLE_TENSOR = auto()
    CALLED_PART = auto()
    WHOLE_WEIGHTS = auto()
    OWN_OPTIMIZER = auto()
    MIXED_WEIGHTS = auto()
    WRITTEN_PART = auto()
    READ_PART = auto()
    SHARED_PARAMETER = auto()
    WEIGHT_PENALTY = auto()


class OfShardedWeights(NamedTuple):
    """Something that raises an error with sharded weights, or needs all processes."""

    node: cst.CSTNode | None
    what: OnShards
    text: str = ""
    """The code that it is about."""
    other: str = ""
    """What else it is about."""
