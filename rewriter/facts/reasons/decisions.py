"""What is found of decisions that processes would make differently."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

import libcst as cst


class Decided(Enum):
    """What a value decides that all processes must decide alike."""

    STEP = auto()
    CHECKPOINT = auto()
    LOSS = auto()
    LOOP = auto()
    RATE = auto()
    COMPUTED_RATE = auto()
    CHANGED_RATE = auto()
    """Whether it is set anew."""


class Doubt(Enum):
    """What would have to be so for processes to decide differently."""

    NONE = auto()
    NUMBERS = auto()
    """They have different numbers of rows."""
    FIGURE = auto()
    """The value is a figure of the shard."""


class Differs(Enum):
    """How a value comes to differ from process to process."""

    BY_SHARD = auto()
    BY_ITSELF = auto()
    """Each process reads it by itself: the clock, a file, its device."""
    BY_DRAWS = auto()
    """Each process evaluates the whole set with random numbers of its own."""
    BY_NOISE = auto()
    """All pass the same rows through a model that draws random numbers."""


class Agreeing(Enum):
    """How processes come to decide alike."""

    VALUE_OF_MAIN = auto()
    EQUAL = auto()
    """On a value that is equal on all of them."""
    AS_ONE = auto()
    """By what is true on any of them."""
    TOLD_BY_MAIN = auto()
    """By what is true on the main process: in a file that knows no accelerator."""
    BY_MAIN = auto()
    """On the figure of the main process."""


class Agreement(NamedTuple):
    """How processes come to decide alike, and on what."""

    how: Agreeing = Agreeing.VALUE_OF_MAIN
    text: str = ""
    """The condition, or the variable."""
    word: str = ""
    """``if`` or ``while``."""


class LocalDecision(NamedTuple):
    """A decision on a value that differs between the processes."""

    node: cst.CSTNode
    value: cst.BaseExpression
    """What it depends on."""
    text: str
    """That value in words."""
    what: Decided
    hangs: bool
    """The processes would hang, or train on with other rates; else only what is saved or chosen would differ."""
    doubt: Doubt
    why: Differs
    remedy: Agreement
    source: cst.CSTNode | None = None
    """Where what differs comes from."""
    draw: str = ""
    """What draws the random numbers."""


class SwallowedError(NamedTuple):
    """A handler by which one process goes on after an error that it meets alone."""

    node: cst.CSTNode
    handler: str
    at_end: bool = False
    """It is meant for the end of the data, and makes a loader anew."""


class LeftOut(NamedTuple):
    """A step that all processes leave out where one of them would."""

    node: cst.CSTNode
    test: str


class ShortBatch(NamedTuple):
    """A step that is left out where a batch is short."""

    node: cst.CSTNode
    test: str
