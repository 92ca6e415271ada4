"""What is found about devices that another number of GPUs, or none, changes."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

import libcst as cst


class UnreadTensor(NamedTuple):
    """A tensor that a module makes while it is imported, and nothing reads."""

    node: cst.Call


class RowAtRest(NamedTuple):
    """A row of a data set, or a number of one, that is combined with what a prepared loader yields."""

    node: cst.BaseExpression
    text: str
    batch: str


class UnusedNumber(NamedTuple):
    """The number of a GPU that is not used any more."""

    node: cst.CSTNode


class NumberedGpu(NamedTuple):
    """A device that code without access to the accelerator reads: it may name a GPU by its number."""

    node: cst.CSTNode
    constant: str


class EarlyTensor(NamedTuple):
    """A tensor on a device, made while its module is imported."""

    node: cst.CSTNode
    constant: str


class OnHost(Enum):
    """What a script does with a tensor of the CPU that would meet the GPU."""

    MADE = auto()
    KEPT = auto()
    GIVEN = auto()
    """It is given to the model, and comes from no prepared loader."""
    MOVED = auto()
    NAMED = auto()
    """It is put there by the name of the CPU."""


class HostMeeting(NamedTuple):
    """Where a tensor of the CPU would meet the GPU."""

    what: OnHost
    text: str = ""
    """What is kept, or given."""


class MadeInForward(NamedTuple):
    """A tensor that a model makes on the CPU, where the script leaves the model."""

    node: cst.CSTNode
    model: str
    """The class of the model."""


class StaysOnHost(NamedTuple):
    """A script that names no device, and would meet the GPU with tensors of the CPU."""

    node: cst.CSTNode
    meetings: tuple[HostMeeting, ...]
    """What happens at the node, and with other tensors."""
    taken: tuple[str, ...]
    """What the CPU needs again."""


class FixedGpu(NamedTuple):
    """A device that names one GPU by its number, and cannot be given that of the process."""

    node: cst.CSTNode
    text: str
    fixed: str


class PartOnCpu(NamedTuple):
    """A script that keeps a part of the training on the CPU, and moves other parts."""

    node: cst.CSTNode
    code: str


class CpuChoice(NamedTuple):
    """What decides whether the CPU is used, where the accelerator cannot read it."""

    node: cst.CSTNode
    code: str


class CpuChoices(NamedTuple):
    """Several conditions that decide whether the CPU is used."""

    node: cst.CSTNode
    conditions: tuple[str, ...]


class SecondGpu(NamedTuple):
    """What the script puts on a second GPU of its own."""

    node: cst.CSTNode
    number: int
    first: int


class TwofoldModule(NamedTuple):
    """A ``.module`` that may be the removed wrapper's, or the model's own."""

    node: cst.CSTNode
    owner: str
    """What has one of its own; empty for the model."""


class UnmovedInput(NamedTuple):
    """Something that the removed wrapper may have moved."""

    node: cst.CSTNode
    wrapper: str
    text: str
    model: str


class LentWrapper(NamedTuple):
    """A wrapper that a file outside the program makes as well."""

    node: cst.CSTNode
    user: str


class ChosenForOthers(NamedTuple):
    """A choice of the visible GPUs in a function that other programs use: the statement stays."""

    node: cst.CSTNode


class PinnedForOthers(NamedTuple):
    """``torch.cuda.set_device(0)`` in a function that other programs use: the line stays."""

    node: cst.CSTNode


class ChosenGpus(NamedTuple):
    """A choice of the visible GPUs, which is removed."""

    node: cst.CSTNode
    notebook: bool
    """Its own process starts the others."""


class CountedGpus(NamedTuple):
    """A word of the removed choice that is looked up for each GPU of the machine."""

    node: cst.CSTNode
    code: str


class PinnedGpu(NamedTuple):
    """The script's own number of a GPU, which has no effect any more."""

    node: cst.CSTNode
    notebook: bool
    """Its own process starts the others."""


class AskedInput(NamedTuple):
    """A question that every process asks."""

    node: cst.CSTNode
