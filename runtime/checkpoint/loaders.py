"""
Loaders in a checkpoint: which epoch they are in, and what their next order is drawn from.

The order of samples is that of process 0 on every process, so one file serves any number of processes. What a loader
class of the script keeps by itself (`state_dict`) differs between processes: one file holds those of all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from ..data.batches import KEY
from ..data.stateful import Stateful, has_workers, is_ours
from ..errors import CheckpointError
from .reading import check_readable, read

_COUNTERS = ("epoch", "iteration")
_OWN = "dl_state_dict.bin"
SAMPLER = "sampler.bin"


def _name(name: str, index: int) -> str:
    return name if index == 0 else name.replace(".", f"_{index}.")


def _holders(loader: DataLoader[Any]) -> dict[str, object]:
    """The objects of a loader that may count epochs or own a generator."""
    batches = getattr(loader, "batch_sampler", None)
    found = {
        "loader": loader,
        "dataset": getattr(loader, "dataset", None),
        "sampler": getattr(loader, "sampler", None),
        "batch_sampler": batches,
        "batch_sampler.sampler": getattr(batches, "sampler", None),
    }
    return {name: one for name, one in found.items() if one is not None}


def shared_state(loader: DataLoader[Any]) -> dict[str, dict[str, Any]]:
    """
    Epoch counters and states of generators, by the part of the loader that holds them.

    "pass" holds how many batches the pass that runs, or was left early, has handed out (0 after a complete one), and
    whether there are workers that persist.
    """
    state: dict[str, dict[str, Any]] = {}
    for name, holder in _holders(loader).items():
        kept: dict[str, Any] = {key: value for key in _COUNTERS if type(value := getattr(holder, key, None)) is int}
        generator = getattr(holder, "generator", None)
        if isinstance(generator, torch.Generator):
            kept["generator"] = generator.get_state()
        if kept:
            state[name] = kept
    share = vars(loader).get(KEY)
    if share is not None:
        one = share.epochs.current
        state["pass"] = {
            "position": one.position if one is not None and not one.exhausted else 0,
            "workers": has_workers(loader),
        }
    return state


def own_state(loader: DataLoader[Any]) -> Any:
    """What a loader class of the script keeps by itself; None where it keeps nothing."""
    method = getattr(loader, "state_dict", None)
    return method() if callable(method) and hasattr(loader, "load_state_dict") else None


def write_loaders(folder: Path, loaders: list[DataLoader[Any]], of_ranks: list[list[Any]]) -> None:
    """
    Write the states of all loaders.

    Args:
        folder: of the checkpoint.
        loaders: those of this process.
        of_ranks: for every process, what `own_state` gave for its loaders.
    """
    for i, loader in enumerate(loaders):
        path = folder / _name(SAMPLER, i)
        torch.save(shared_state(loader), path)
        own = [states[i] for states in of_ranks]
        if any(state is not None for state in own):
            path = folder / _name(_OWN, i)
            torch.save({"ranks": own}, path)
            check_readable(path, type(loader).__name__)


def load_loader_state(loader: DataLoader[Any], folder: Path, index: int, rank: int) -> None:
    """
    Continue where a loader stood. A folder without its files (of Accelerate) leaves it as it is.

    Raises:
        CheckpointError: the loader's own state is that of another number of processes.
    """
    shared = folder / _name(SAMPLER, index)
    if shared.is_file():
        holders = _holders(loader)
        for name, kept in read(shared).items():
            holder = holders.get(name)
            if holder is not None:
                _restore(holder, kept)
            elif name == "pass" and KEY in vars(loader):
                vars(loader)[KEY].epochs.workers = kept.get("workers", False)
    own = folder / _name(_OWN, index)
    if own.is_file() and callable(getattr(loader, "load_state_dict", None)):
        found = read(own)
        states = found["ranks"] if set(found) == {"ranks"} else [found] * (rank + 1)
        if rank >= len(states):
            raise CheckpointError(
                f"{own} holds the states of {len(states)} processes, and this is process {rank}. Load it on the same "
                "number of processes."
            )
        state = states[rank]
        if not is_ours(state) or isinstance(loader, Stateful):
            loader.load_state_dict(state)  # type: ignore[attr-defined]
        elif state["position"]:  # of torchdata's class, which has our state on several processes only
            raise CheckpointError(
                f"{own} was saved in the middle of an epoch on {state['processes']} processes. Load it on the same "
                "number."
            )


def _restore(holder: Any, kept: dict[str, Any]) -> None:
    generator = getattr(holder, "generator", None)
    if "generator" in kept and isinstance(generator, torch.Generator):
        generator.set_state(kept["generator"].clone())
    for key in _COUNTERS:
        if key in kept and type(getattr(holder, key, None)) is int:
            setattr(holder, key, kept[key])
