"""What is seen of a program as a whole: what prevents its migration, and what is another thing on several processes."""

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


class SameNoise(NamedTuple):
    """Numbers of NumPy's generator in a training step, which are equal on all processes."""

    node: cst.CSTNode


class KeptOutputs(NamedTuple):
    """Outputs of the model that are kept from step to step, in a model or an object."""

    node: cst.CSTNode


class KeptTensors(NamedTuple):
    """Tensors of earlier steps that later steps use."""

    node: cst.CSTNode
    name: str


class Observers(NamedTuple):
    """What puts observers into a model, which collect the ranges of what passes by."""

    node: cst.CSTNode
    caller: str


class ComparedRows(NamedTuple):
    """A loss that compares the rows of a batch with one another."""

    node: cst.CSTNode


class ComparedWithBatch(NamedTuple):
    """A loss that compares each row with a figure of its whole batch."""

    node: cst.CSTNode
    text: str


class ApexAmp(NamedTuple):
    """apex.amp, which patches the model and the optimizer."""

    node: cst.CSTNode


class ApexDdp(NamedTuple):
    """The wrapper of apex, which averages the gradients."""

    node: cst.CSTNode


class UnsteppedScaler(NamedTuple):
    """A scaler that scales the loss, and never steps."""

    node: cst.CSTNode


class OutsideSaver(NamedTuple):
    """Something of another package that is given the model and may save it."""

    node: cst.CSTNode
    name: str


class UnknownSaver(NamedTuple):
    """A method that nothing in the program defines, and that may write a file."""

    node: cst.CSTNode
    method: str


class ReplacedMethod(NamedTuple):
    """A method, or a function of a module, that is replaced while the script runs."""

    node: cst.CSTNode
    method: str
    of_module: bool
    """A function of a module, not a method of a class."""


class SetByName(NamedTuple):
    """Variables that are set by names which are computed."""

    node: cst.CSTNode
    name: str
    """The one variable, where it is known which; else empty."""


class HashOfText(NamedTuple):
    """The hash of a string, which Python computes anew in each process."""

    node: cst.CSTNode
    text: str


class SetOrder(NamedTuple):
    """What follows the order of a set of strings."""

    node: cst.CSTNode
    name: str
    followed: str
    certain: bool
    """Its elements are known to be strings."""
    made: cst.CSTNode | None
    """Where the set is made."""


class KeptForLoss(NamedTuple):
    """Variables that keep outputs of earlier steps, which the loss of later steps uses."""

    node: cst.CSTNode
    names: tuple[str, ...]


class OwnStream(NamedTuple):
    """A ``__getitem__`` that does not use the index: it reads on by itself."""

    node: cst.CSTNode
    dataset: str
    position: str
    text: str
    """What goes on, or may go on."""
    certain: bool


class SameRows(NamedTuple):
    """A data set that chooses by Python's or NumPy's generator, so that all processes choose the same."""

    node: cst.CSTNode
    dataset: str
    container: str
    """What it chooses from, where that is not its rows; else empty."""
    seed: str
    """What seeds the generator of a worker, if something does."""


class OwnBatchNorm(NamedTuple):
    """A layer of BatchNorm, which normalises over the batch of its process."""

    node: cst.CSTNode
    maker: str
    """What makes one under some conditions; else empty."""
    model: str
    """The model that has one, where the layer itself is not made here; else empty."""
    others: int
    """How many other modules have some."""


class UnseenLayers(NamedTuple):
    """A model whose layers cannot be seen."""

    node: cst.CSTNode
    maker: str


class NotLinear(NamedTuple):
    """A loss that takes a function of a sum or mean over the batch which is not linear."""

    node: cst.CSTNode
    source: cst.CSTNode
    """Where it does."""
    reason: str
    """What it does there, as a phrase."""
    otherwise: bool
    """Another loss may be chosen."""


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
