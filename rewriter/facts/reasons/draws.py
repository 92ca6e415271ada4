"""What is found of random numbers that are drawn too early, or too late, to be what the script means."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst


class RedrawnWeights(NamedTuple):
    """Weights that are drawn after ``prepare``."""

    node: cst.Call


class UnlikeModel(NamedTuple):
    """A model that draws its weights after ``prepare``, and is not prepared itself."""

    node: cst.CSTNode
    text: str


class ShakenWeights(NamedTuple):
    """Noise on weights, or gradients, that is drawn after ``prepare``."""

    node: cst.CSTNode
    text: str
    gradients: bool


class MadeRows(NamedTuple):
    """Rows of the data that are drawn after ``prepare``."""

    node: cst.CSTNode
    text: str


class OrderedRows(NamedTuple):
    """A loader that is shuffled after ``prepare``, by which rows are chosen."""

    node: cst.CSTNode
    text: str


class RestingLayers(NamedTuple):
    """Layers that are made on the CPU, after ``prepare`` has placed their model."""

    node: cst.CSTNode
    called: str


class GrownLayers(NamedTuple):
    """Layers that are made after ``prepare`` and keep a plain tensor of what they draw."""

    node: cst.CSTNode
    kept: str
    klass: str


class LateSplit(NamedTuple):
    """A random split that is drawn after ``prepare``."""

    node: cst.Call


class OwnSeedDrawn(NamedTuple):
    """A seed that differs, or may differ, between ranks, by which data is drawn."""

    node: cst.CSTNode
    seed: str
    draw: str
    divides: bool
    """The draw chooses or orders the rows; else it makes them."""
    sure: bool


class Unseeded(NamedTuple):
    """A draw that runs before seeds are synchronised."""

    node: cst.CSTNode
    text: str
    effect: str
    """What ranks would do then, as a phrase."""
