"""What is seen of a program that is another thing on several processes."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst


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
    split: bool
    """The processes share the script's batches: each has a part of one."""


class RankedRows(NamedTuple):
    """A loss that takes rows by how large they are among those of their batch."""

    node: cst.CSTNode
    text: str
    split: bool
    """The processes share the script's batches: each has a part of one."""


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
    """A method that is not seen, and that may write a file."""

    node: cst.CSTNode
    method: str
    classes: tuple[str, ...]
    """The classes of the program with a method of that name: one of them may be meant."""


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
    workers: bool = False
    """The script has workers unless an option says otherwise."""


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
