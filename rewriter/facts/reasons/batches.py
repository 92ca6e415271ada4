"""What is found of batches that each process has its own of, or its shard of."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst


class TiedShape(NamedTuple):
    """A shape that uses the script's batch size, where each process has its shard of the rows."""

    node: cst.CSTNode


class NumberedBatch(NamedTuple):
    """A table that is read at the number of the batch."""

    node: cst.CSTNode
    table: str
    place: str


class NumberedRows(NamedTuple):
    """A table whose rows are read, or kept, at places that are counted by the batches."""

    node: cst.CSTNode
    table: str
    place: str
    kept: bool


class PlacedRows(NamedTuple):
    """A loss that is computed from rows by their places in the batch."""

    node: cst.CSTNode
    text: str


class ShownRows(NamedTuple):
    """A file that shows rows of a batch: those of the main process alone."""

    node: cst.CSTNode
    name: str
    filled: bool
    """They are put into it one after the other."""
    sample: bool = False
    """It is a picture that a step of the training writes, for somebody to look at."""


class HandedLoader(NamedTuple):
    """A loader that code which cannot be seen is given."""

    node: cst.CSTNode
    caller: str
    loader: str


class ShownShard(NamedTuple):
    """A batch that is made by hand and shown: the rows of one process."""

    node: cst.Call


class ShardedBatch(NamedTuple):
    """A batch that is made by hand, of which each process takes its rows."""

    node: cst.CSTNode
    names: tuple[str, ...]
    """The variables of the batch."""
    sums: bool
    """A loss is a sum over its rows."""
    source: str
    """What hands it out, where that may be a loader."""
    bent: bool
    """A loss that may be chosen is no mean and no sum over its rows."""
    beside: bool = False
    """Another training of the program has its batches from a loader."""


class ListedBatches(NamedTuple):
    """All batches, read into a list before the first one is used."""

    node: cst.CSTNode


class EarlyHorizon(NamedTuple):
    """A learning rate that divides a count of steps by a length from before the loader is prepared."""

    node: cst.CSTNode
    steps: str
    asked: str


class EarlyLength(NamedTuple):
    """What is divided by the length of a loader from before it is prepared."""

    node: cst.CSTNode
    name: str
    length: str
    asked: cst.CSTNode
    """Where it is asked for."""


class DroppedBatches(NamedTuple):
    """An evaluation of a loader that leaves out what does not fill a batch."""

    node: cst.CSTNode
    certain: bool
    option: str
    """What is given for ``drop_last``, if something is."""
    apart: bool
    """Another loader of the same code is trained on."""


class PhasesInOneLoop(NamedTuple):
    """A loop that both trains and evaluates, where a shard is padded with repeated rows."""

    node: cst.CSTNode
    adds_up: bool
    """The loss is added up over the processes, not averaged."""
