"""What is found of metrics that are not those of all rows, or only about."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

import libcst as cst


class SumsByOwnSteps(NamedTuple):
    """Sums over the rows of all processes, divided by the steps of one."""

    node: cst.CSTNode
    divisor: str
    figures: tuple[str, ...]


class MeanOfSums(NamedTuple):
    """A mean over steps of what the rows of all processes give in each."""

    node: cst.CSTNode
    place: str
    mean: str


class MeansByRows(NamedTuple):
    """Means of joined batches that are added up, and divided by the rows of all processes."""

    node: cst.CSTNode
    total: str
    divisor: str
    added: cst.CSTNode
    """Where they are added up."""


class JoinedMetric(NamedTuple):
    """A metric that combines what all processes give it, and counts repeated rows."""

    node: cst.Call
    name: str


class JoinedTwice(NamedTuple):
    """A metric that combines rows of all processes, and is given those already."""

    node: cst.Call
    name: str


class SumDivisor(Enum):
    """What a sum of the means of batches is divided by, where that is not their number."""

    NOTHING = auto()
    LAST_INDEX = auto()
    """The index of the last batch, one less than their number."""
    SAMPLES = auto()
    OWN_BATCHES = auto()
    """The batches of one process, counted by hand."""


class AddedMeans(NamedTuple):
    """Means of batches that are added up, and divided by something else than their number."""

    node: cst.CSTNode
    total: str
    added: cst.CSTNode
    """Where they are added up."""
    divisor: SumDivisor
    partly: bool
    """They are means on one path of the program, and sums on another."""
    within: tuple[str, ...] = ()
    """What each of them is divided by."""
    by_rows: bool = False
    """One of those is the number of rows."""


class MeansUnderRows(NamedTuple):
    """A mean that is divided by the number of a batch's rows and added up."""

    node: cst.CSTNode
    total: str
    rows: str


class SummedMeans(NamedTuple):
    """Means over batches that are added up and divided by nothing."""

    node: cst.CSTNode
    name: str


class ScaledMeans(NamedTuple):
    """Means over batches that are added up and divided by a fixed number."""

    node: cst.CSTNode
    name: str
    divisor: str
    """By what, as a phrase."""


class JointRatio(NamedTuple):
    """A ratio that is computed from joined rows and averaged over batches."""

    node: cst.CSTNode
    name: str
    value: str


class JointFigure(NamedTuple):
    """A figure that is computed from joined rows, and may be no sum over them."""

    node: cst.CSTNode
    name: str
    value: str
    reason: str
    """Why it is not known, as a phrase."""
    weighed: bool = False
    """The script weighs it with the number of rows of its batch, as a mean over them is weighed."""


class WeighedMeans(NamedTuple):
    """Means over the rows of each batch, times their number."""

    node: cst.CSTNode
    names: tuple[str, ...]


class CollectedMeans(NamedTuple):
    """Means over the rows of each batch, which are averaged over batches."""

    node: cst.CSTNode
    names: tuple[str, ...]
    filled: bool
    """Repeated rows fill up the last batch of one of them."""
    whole: bool
    """Of all of them, and every batch is full."""


class OwnQuotient(NamedTuple):
    """The figure that a total of one process's own rows goes into."""

    text: str
    by_rows: bool
    """The total is divided by the number of all rows."""


NUMBER = ".item()"
"""Reads a number off a tensor."""


class OverAll(Enum):
    """How a total of one process becomes that of all."""

    AVERAGED = auto()
    AVERAGED_EACH = auto()
    """Each figure where it is kept."""
    AVERAGED_ADDED = auto()
    """Each figure where it is added to one of several totals."""
    JOINED = auto()
    """The entries of a list."""
    JOINED_EACH = auto()
    """The rows that are kept batch by batch, where they are kept: a list of batches cannot be joined."""
    JOINED_ALONE = auto()
    """The one row that each batch has, where it is kept."""
    SUMMED = auto()
    """Both halves of a quotient, before it."""
    SUMMED_OR_AVERAGED = auto()
    """It is not known what it adds up."""


class TotalRemedy(NamedTuple):
    """How a total of one process becomes that of all, in the names of the script."""

    how: OverAll
    place: str = ""
    """Where it is kept."""
    value: str = ""
    """What is kept there each time."""
    halves: tuple[tuple[str, str], ...] = ()
    """The totals, each with what reads it off a tensor again: ``.item()`` for a number."""


class OwnTotal(NamedTuple):
    """A total of one process's own rows."""

    node: cst.CSTNode
    quotient: OwnQuotient | None = None
    remedy: TotalRemedy | None = None


class OwnFigures(NamedTuple):
    """Totals of figures of whole batches, and what they are divided by: those of joined batches are others."""

    node: cst.CSTNode
    values: tuple[str, ...]
    quotient: OwnQuotient | None
    remedy: TotalRemedy


class OwnSingles(NamedTuple):
    """A total of batches of one row that cannot be joined, and is no number that could be reduced."""

    node: cst.CSTNode
    why: str
    """Why they cannot, as a phrase."""
    quotient: OwnQuotient | None
    remedy: TotalRemedy


class CountsFilled(NamedTuple):
    """Sums over the processes that count repeated rows."""

    node: cst.CSTNode
    figures: tuple[str, ...]
    """Each, or what it becomes when it is divided by the number of all rows."""


class AveragesFilled(NamedTuple):
    """Means that are weighed by the number of rows, and sums that are divided by one another, with repeated rows."""

    node: cst.CSTNode
    numbers: tuple[str, ...]


class AveragesUneven(NamedTuple):
    """Means of batches that are cut by hand, or of rows that are chosen by what is in them, weighed by their number."""

    node: cst.CSTNode
    numbers: tuple[str, ...]
    chosen: bool = False
