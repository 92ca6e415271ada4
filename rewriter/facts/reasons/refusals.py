"""What is seen of a program that prevents its migration, or the migration of a file."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst


class ComputedImport(NamedTuple):
    """A file that trains, imported by a name that the script computes."""

    node: cst.CSTNode
    pattern: str
    """What is written out of that name."""
    module: str


class TrainsInTest(NamedTuple):
    """A training that a test runner starts."""

    node: cst.CSTNode


class NothingStarts(NamedTuple):
    """A training that nothing in its file starts."""

    node: cst.CSTNode


class FrameworkLoop(NamedTuple):
    """A framework that owns the training loop."""

    node: cst.CSTNode
    framework: str


class TrainerLoop(NamedTuple):
    """A trainer that owns the training loop."""

    node: cst.CSTNode
    trainer: str


class HyperparameterSearch(NamedTuple):
    """A search for the settings of the training."""

    node: cst.CSTNode


class OwnProcesses(NamedTuple):
    """Processes of the script's own making, which train."""

    node: cst.CSTNode


class RemovedNext(NamedTuple):
    """``batches.next()``, a method that iterators of loaders do not have any more."""

    node: cst.CSTNode
    iterator: str
    feeds: bool = True
    """The training has its batches by it."""


class NoEntries(NamedTuple):
    """``loss.data[0]``: a loss is one number and has no entries."""

    node: cst.CSTNode
    text: str
    loss: str


class UndefinedFeed(NamedTuple):
    """What feeds the training is defined nowhere."""

    node: cst.CSTNode
    name: str


class NoBatches(NamedTuple):
    """A training that nothing is seen to feed."""

    node: cst.CSTNode


class OwnList(NamedTuple):
    """A list that the script fills by itself, which feeds the training."""

    node: cst.For
    name: str


class FeedOrigin(NamedTuple):
    """Where what feeds the training is filled, or made."""

    node: cst.CSTNode
    filled: bool


class UnclearFeed(NamedTuple):
    """What feeds the training, and may be a loader."""

    node: cst.CSTNode
    name: str
    source: cst.CSTNode
    origin: FeedOrigin | None


class ForeignFeed(NamedTuple):
    """What feeds the training is made by a package of which nothing is known."""

    node: cst.CSTNode
    text: str
    variable: str
    """The variable that holds it; empty where it has none."""
    giver: str
    """What gives it."""


class UncutBatches(NamedTuple):
    """Batches without a loader that cannot be cut into shards."""

    node: cst.CSTNode
    reason: str
    """Why, as a phrase."""
    remedy: str
    plays: bool
    """They come from an environment."""
    called: str
    """What is called there, of a class that cannot be told; else empty."""
    maker: str
    training: cst.CSTNode | None
    """The training, where it is elsewhere."""


class ConflictingRoles(NamedTuple):
    """A variable for which the evidence speaks of several roles."""

    node: cst.CSTNode
    name: str
    roles: tuple[tuple[str, str], ...]
    """Each role with its evidence."""
    in_turn: bool
    """It is one thing first, and another one later."""
