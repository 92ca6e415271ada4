"""Devices, processes, and what runs training on many of them."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Device(NamedTuple):
    """Gives a device."""


class Available(NamedTuple):
    """Says whether there is an accelerator, or how many."""


class Pin(NamedTuple):
    """Chooses the device of this process."""


class RankNumber(NamedTuple):
    """The number of this process, or how many there are."""

    of: Literal["rank", "local rank", "world size"] = "rank"
    starts: bool = False
    """The launcher has joined the processes already: who asks distributes itself."""


class ProcessStart(NamedTuple):
    """Starts processes, or joins them to a group: what a program that distributes itself by hand calls."""

    spawns: bool = False


class Collective(NamedTuple):
    """All processes must make this call together."""

    op: Literal[
        "barrier",
        "turns",
        "reduce",
        "gather",
        "pad",
        "broadcast",
        "scatter",
        "exchange",
        "between two",
        "backward",
        "clip",
        "prepare",
        "save",
    ] = "barrier"
    """Turns: one after another. Between two: a process sends, and another one receives."""


class GroupState(NamedTuple):
    """Says whether the processes are connected, or by what; it waits for nobody."""


class AcceleratorClass(NamedTuple):
    """The object that distributes a program: ours, or Accelerate's."""

    state: bool = False
    """It only says which process this is: ``PartialState``."""


class Framework(NamedTuple):
    """A package that runs the training loop."""

    title: str = ""


class FrameworkPart(NamedTuple):
    """A part of such a package that leaves the loop to the script."""


class CommandLine(NamedTuple):
    """Starts functions of the script, as the command line says: a decorator, or a function that returns one."""

    module: bool = False
    """Without an argument it offers all functions of the file that calls it."""


class PlayedEnvironment(NamedTuple):
    """Makes an environment that is played: each process would play its own."""


class Search(NamedTuple):
    """Searches hyperparameters: it calls the training, or proposes values to try."""
