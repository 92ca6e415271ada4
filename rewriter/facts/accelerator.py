"""Where the accelerator is made, its way into functions and objects, and what it prepares."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

import libcst as cst


class Side(Enum):
    """Where something is relative to a statement."""

    BEFORE = "before"
    AFTER = "after"
    INSTEAD = "instead"


class Home(NamedTuple):
    """Where the accelerator is created."""

    node: cst.CSTNode
    """The statement beside which, or instead of which, it is created."""
    side: Side
    arguments: tuple[tuple[str, str], ...]
    """Keyword and value, as source text."""
    because: str
    removed: tuple[cst.CSTNode, ...] = ()
    """Further statements that only defined the device, and are removed."""
    gives: str = ""
    """A statement that follows: it stores the device where the script keeps it."""
    ran_on: Literal["", "cpu", "cuda or cpu", "mps or cpu"] = ""
    """What the script ran on before: it named no device, or chose between these two; empty for anything else."""


@dataclass(frozen=True)
class HandDown:
    """A function that gets the accelerator as a parameter."""

    function: cst.FunctionDef
    replaces: cst.Param | None
    """The device parameter that it replaces; None if a parameter is added."""
    index: int | None
    """Position among the positional parameters; None if the new one is keyword-only, because it is required and others
    have defaults, or ``*args`` takes all that are left."""
    makes: cst.CSTNode | None = None
    """Files outside the program call it as well, and give none: it makes one for itself before this statement."""
    arguments: tuple[tuple[str, str], ...] = ()
    """Keywords and texts of that one's arguments."""
    own: bool = False
    """Nothing calls it: it makes one for itself in any case, and gets no parameter."""


@dataclass(frozen=True)
class Handing:
    """A call of such a function."""

    call: cst.Call
    replaces: cst.Arg | None
    """The device argument that the accelerator replaces; None if an argument is added."""
    index: int | None


class Store(NamedTuple):
    """A constructor that keeps the accelerator for the methods of its object."""

    node: cst.CSTNode
    """The statement beside which the assignment is written."""
    side: Side
    object: str
    """What the object is called: ``self``."""


class Prepare(NamedTuple):
    """One ``prepare`` call to be written."""

    node: cst.CSTNode
    """The statement beside which it is written."""
    names: tuple[str, ...]
    """Source text of what is prepared, in order."""
    because: str
    side: Side = Side.AFTER
    wraps: cst.BaseExpression | None = None
    """For a loader that no visible name holds: the constructor expression to wrap in place."""


class LoaderCopy(NamedTuple):
    """A second loader of the same data, which nobody prepares."""

    node: cst.CSTNode
    """The statement after which it is made."""
    name: str
    made: cst.Call
    """What makes the first one."""
    reads: tuple[cst.Name, ...]
    """Where the second one takes the place of the first."""
