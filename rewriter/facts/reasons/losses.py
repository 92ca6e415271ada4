"""What is found of losses: how the processes' parts make up the whole."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst


class OpenReduction(NamedTuple):
    """A loss that is taken for a mean over the rows, and may be a sum."""

    node: cst.CSTNode
    loss: str
    reason: str
    part: cst.CSTNode | None
    source: cst.CSTNode | None
    """Where that is not known."""


class NoMean(NamedTuple):
    """A loss that is no mean and no sum over the rows of its batch, with the global batch kept."""

    node: cst.CSTNode | None
    text: str
    reason: str
    source: cst.CSTNode
    """Where it is not."""


class UnclearLoss(NamedTuple):
    """A loss of which it is not known what it is of the rows of its batch, with the global batch kept."""

    node: cst.CSTNode | None
    text: str
    reason: str
    source: cst.CSTNode
    """Where it is not known."""
    sums: bool
    """It is taken for a sum, not for a mean."""


class OwnWeights(NamedTuple):
    """Weights, or gradients, that a value of one process's own changes."""

    node: cst.CSTNode
    text: str
    gradients: bool


class OwnLossWeight(NamedTuple):
    """A weight of the loss that each process computes from its own shard."""

    node: cst.CSTNode
    name: str


class OwnClosure(NamedTuple):
    """The loss that a closure returns, by which LBFGS chooses its step."""

    node: cst.CSTNode


class WeightedFigure(NamedTuple):
    """A loss of an evaluation that is divided by the weights of a batch's rows."""

    node: cst.Call
    divisor: str


class WeightedMean(NamedTuple):
    """A mean of the loss by more than the number of rows."""

    node: cst.CSTNode
    how: str
    """What each process does, as a phrase."""
    part: cst.CSTNode | None = None
