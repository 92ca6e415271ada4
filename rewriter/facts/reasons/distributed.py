"""What is found of programs that distribute themselves, and of what only some processes do."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

import libcst as cst


class MetApart(NamedTuple):
    """What all processes must do together, under a condition that only some pass."""

    node: cst.CSTNode
    condition: str
    work: str


class UnmovedBatches(NamedTuple):
    """A loop over a loader that stays whole, where nothing moves its batches."""

    node: cst.CSTNode
    loader: str
    because: str
    """Why it stays whole, as a phrase."""


class CudaOnlyMove(NamedTuple):
    """A move that is made only where there is CUDA."""

    node: cst.CSTNode
    test: str
    moved: str


class KeptCall(NamedTuple):
    """A call of torch.distributed that stays."""

    node: cst.CSTNode
    name: str


class NoSpawn(NamedTuple):
    """Processes that the script does not start any more."""

    node: cst.CSTNode


class Unconnected(NamedTuple):
    """The accelerator cannot be made where the script joins its processes."""

    node: cst.CSTNode


class NoPrefix(NamedTuple):
    """A checkpoint of the wrapper itself: its keys are other ones now."""

    node: cst.Call


class AlsoOfUser(NamedTuple):
    """A group that opens under a condition of which the launcher decides a part only."""

    node: cst.CSTNode
    part: cst.BaseExpression
    test: str
    option: str


class ListedCall(NamedTuple):
    """A call that distributes the program, in one that is not migrated for it."""

    node: cst.CSTNode
    name: str


class ListedVariable(NamedTuple):
    """A variable of the launcher, in a program that is not migrated for what it does by hand."""

    node: cst.CSTNode
    name: str


class Hindrance(Enum):
    """Why a piece of distribution by hand is not replaced."""

    OWN_GROUP = auto()
    NO_COUNTERPART = auto()
    HIDDEN_ARGUMENTS = auto()
    UNKNOWN_OPTION = auto()
    USED_RESULT = auto()
    OWN_CONDITION = auto()
    UNKNOWN_WORKER = auto()
    SEVERAL_MODES = auto()
    HIDDEN_WORKER_ARGUMENTS = auto()
    GOES_ON = auto()
    STARTED_AGAIN = auto()
    OPEN_PARAMETERS = auto()
    SPREAD_MODEL = auto()
    UNKNOWN_MODEL = auto()
    WRAPPER_METHOD = auto()
    RANK_DEVICE = auto()
    SET_VARIABLE = auto()
    EXCHANGE_SWITCH = auto()
    OWN_SAMPLER = auto()
    NO_SAMPLER = auto()
    UNKNOWN_LOADER = auto()


class NotReplaced(NamedTuple):
    """A piece of distribution by hand for which the accelerator has nothing."""

    node: cst.CSTNode
    why: Hindrance
    name: str = ""
    """What it is about: a function, a variable, a class, a condition."""
    option: str = ""
    """The argument that it is about."""
    part: cst.CSTNode | None = None
    """What of the node it is about."""
    given: cst.CSTNode | None = None
    """Where what decides is set."""
