"""What is found of training steps on a device that compiles them: a TPU."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst


class StepWaits(NamedTuple):
    """Values that a step needs, for which a TPU makes the script wait."""

    node: cst.CSTNode
    values: str
    """The values, as a list in words."""
    several: bool


class OpenShapes(NamedTuple):
    """Numbers of rows that depend on values, each of which a TPU compiles anew."""

    node: cst.CSTNode
    values: str
    """What has so many rows, as a list in words."""
    several: bool


class OnlyCuda(NamedTuple):
    """What is an error, or means nothing, where there is no CUDA."""

    node: cst.CSTNode
    text: str
