"""What the analysis asks about processes: what starts them, which one this is, what they do together."""

from __future__ import annotations

from functools import cache
from typing import Literal

from ..spellings import WITHOUT_CUDA
from .kinds import processes, training
from .loading import methods, named, transfer


def only_says_which(name: str) -> bool:
    """Whether a class only says which process this is, and distributes nothing: ``PartialState``."""
    found = transfer(name, processes.AcceleratorClass)
    return found is not None and found.state


# ---------------------------------------------------------------- wrappers of models


@cache
def wrappers(distributes: Literal["threads", "processes"]) -> frozenset[str]:
    """Wrappers of a model that use several devices: by threads, or by processes."""
    return frozenset(name for name, each in named(training.Wrapper).items() if each.distributes == distributes)


def is_wrapper(name: str) -> bool:
    """Whether a call wraps a model in one that uses several devices."""
    found = transfer(name, training.Wrapper)
    return found is not None and found.distributes != ""


def applies(name: str) -> bool:
    """Whether a function calls the model that it gets, on several devices."""
    return transfer(name, training.AppliedModel) is not None


def wrapper_attributes(name: str) -> list[str]:
    """The attributes of a wrapper that the model inside does not have."""
    found = transfer(name, training.Wrapper)
    return found.own.split() if found is not None else []


def same_model(name: str) -> bool:
    """Whether a call returns the model that it gets, possibly wrapped."""
    return transfer(name, training.Wrapper) is not None


def joins_processes(name: str) -> bool:
    """Whether a metric combines the values of all processes by itself."""
    found = transfer(name, training.Metric)
    return found is not None and found.joins


# ---------------------------------------------------------------- processes and devices


def spawns(name: str) -> bool:
    """Whether a call starts processes that run a function of the script."""
    found = transfer(name, processes.ProcessStart)
    return found is not None and found.spawns


def is_distributed_sampler(name: str) -> bool:
    """Whether a sampler gives each process its own rows."""
    found = transfer(name, training.Sampler)
    return found is not None and found.distributed


def distributes(name: str) -> bool:
    """Whether a program that calls this distributes itself by hand."""
    by_processes = name in wrappers("processes") or is_distributed_sampler(name)
    number = transfer(name, processes.RankNumber)
    joined = number is not None and number.starts
    return by_processes or joined or transfer(name, processes.ProcessStart) is not None


def rank_number(name: str) -> str:
    """Which number of a process a call gives: ``rank``, ``local rank``, ``world size``; empty for other calls."""
    found = transfer(name, processes.RankNumber)
    return found.of if found is not None else ""


def pins(name: str) -> bool:
    """Whether a call chooses the device of this process."""
    return transfer(name, processes.Pin) is not None


def asks_availability(name: str) -> bool:
    """Whether a call asks if there is an accelerator, or how many."""
    return transfer(name, processes.Available) is not None


def needs_cuda(name: str) -> bool:
    """Whether a function of `torch.cuda` has no answer where there is no CUDA."""
    module, _, last = name.rpartition(".")
    return module == "torch.cuda" and last not in WITHOUT_CUDA


def starts_commands(name: str) -> bool:
    """Whether a decorator, or a function that returns one, makes functions into commands of the command line."""
    return transfer(name, processes.CommandLine) is not None


def offers_module(name: str) -> bool:
    """Whether a call without an argument offers all functions of its file to the command line."""
    found = transfer(name, processes.CommandLine)
    return found is not None and found.module


# ---------------------------------------------------------------- what all processes do together

_RUNTIME = "torchlift.runtime."
_ACCELERATOR = f"{_RUNTIME}Accelerator"
_GROUP = "torch.distributed."
_JOINING = ("reduce", "gather", "broadcast")


def collective(name: str) -> processes.Collective | None:
    """What processes that are connected by hand do together in a call of torch; None for other calls."""
    return transfer(_GROUP + name.rpartition(".")[2], processes.Collective) if name.startswith(_GROUP) else None


def asks_group(name: str) -> bool:
    """Whether a call of torch asks about the group of processes."""
    return name.startswith(_GROUP) and transfer(_GROUP + name.rpartition(".")[2], processes.GroupState) is not None


@cache
def together() -> frozenset[str]:
    """The methods of the accelerator that all processes must call together."""
    return methods(_ACCELERATOR, processes.Collective)


def saves_by_one(name: str) -> bool:
    """Whether all processes call a method of a package's trainer, in which one of them writes."""
    found = transfer(name, processes.Collective)
    return found is not None and found.op == "save"


@cache
def turns() -> frozenset[str]:
    """Those of them that let one process go before the others."""
    return _methods_of("turns")


@cache
def joining() -> frozenset[str]:
    """Those whose result is made from the values of all processes, and is the same on all."""
    return _methods_of(*_JOINING)


def joins_values(name: str) -> bool:
    """Whether a function of the runtime gives all processes the same."""
    found = transfer(name, processes.Collective) if name.startswith(_RUNTIME) else None
    return found is not None and found.op in _JOINING


@cache
def exchanging() -> frozenset[str]:
    """Those whose result holds values of other processes, or is padded to their sizes."""
    return _methods_of(*_JOINING, "pad")


@cache
def joining_names() -> frozenset[str]:
    """The last names of all calls that join the values of all processes: of the accelerator, and of torch."""
    rows = named(processes.Collective).items()
    return frozenset(name.rpartition(".")[2] for name, found in rows if found.op in _JOINING)


def _methods_of(*ops: str) -> frozenset[str]:
    return frozenset(n for n in together() if named(processes.Collective)[f"{_ACCELERATOR}.{n}"].op in ops)
