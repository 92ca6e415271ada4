"""What a checkpoint holds, file by file: the names are those that Accelerate documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from ..device.placement import for_files
from ..errors import CheckpointError, CheckpointPathError
from ..gradients.optimizer import Gate, update_scale
from ..strategies.unwrap import unwrap
from .loaders import load_loader_state
from .reading import check_readable, read
from .shards import PICKLED, SAFE
from .tensors import plain_names, read_tensors, with_ties, without_ties, write_tensors

SCALER = "scaler.pt"


class HasState(Protocol):
    """What may be registered for checkpoints."""

    def state_dict(self) -> Mapping[str, Any]:
        """The state, as plain values and tensors."""

    def load_state_dict(self, state: Any) -> Any:
        """Take over a state."""


class Parts(Protocol):
    """What has been prepared."""

    models: list[nn.Module]
    gates: list[Gate]
    schedulers: list[LRScheduler]
    loaders: list[DataLoader[Any]]


def numbered(name: str, index: int) -> str:
    """`optimizer.bin`, `optimizer_1.bin`, ..."""
    stem, dot, suffix = name.partition(".")
    return name if index == 0 else f"{stem}_{index}{dot}{suffix}"


def random_name(rank: int) -> str:
    """The file with the random numbers of one process."""
    return f"random_states_{rank}.pkl"


def custom_name(index: int) -> str:
    """The file with the state of a registered object."""
    return f"custom_checkpoint_{index}.pkl"


def write_model(state: Mapping[str, Any], folder: Path, index: int, safe: bool) -> None:
    """The weights of one model."""
    if safe:
        tensors, dropped = without_ties(state)
        write_tensors(tensors, folder / numbered(SAFE.whole, index), dropped)
    else:
        write(dict(state), folder / numbered(PICKLED.whole, index), "a model")


def write(state: Any, path: Path, what: str) -> None:
    """`torch.save`, and make sure that it can be loaded again."""
    torch.save(for_files(state), path)
    check_readable(path, what)


def write_prepared(folder: Path, parts: Parts, states: list[Any], scaler: torch.amp.GradScaler | None) -> None:
    """Optimizers, whose states are given, schedulers and the scaler."""
    update_scale(parts.gates, scaler)
    for i, (gate, state) in enumerate(zip(parts.gates, states, strict=True)):
        name = type(gate.optimizer).__name__
        write(state, folder / numbered("optimizer.bin", i), name)
    for i, scheduler in enumerate(parts.schedulers):
        write(scheduler.state_dict(), folder / numbered("scheduler.bin", i), type(scheduler).__name__)
    if scaler is not None:
        write(scaler.state_dict(), folder / SCALER, "the scaler")


def write_registered(folder: Path, objects: Sequence[HasState]) -> None:
    """The objects that the script has registered."""
    for i, one in enumerate(objects):
        write(one.state_dict(), folder / custom_name(i), type(one).__name__)


def load_model(model: nn.Module, folder: Path, index: int, **kwargs: Any) -> None:
    """The weights of one model, whichever format they are in."""
    plain: nn.Module = unwrap(model)
    safe, pickled = folder / numbered(SAFE.whole, index), folder / numbered(PICKLED.whole, index)
    state = read_tensors(safe) if safe.is_file() else read(_there(pickled))
    plain.load_state_dict(with_ties(plain_names(state, plain), plain), **kwargs)


def load_prepared(
    folder: Path,
    parts: Parts,
    scaler: torch.amp.GradScaler | None,
    map_location: Any,
    rank: int,
    **kwargs: Any,
) -> None:
    """Optimizers, schedulers, loaders and the scaler."""
    for i, gate in enumerate(parts.gates):
        path = _there(folder / numbered("optimizer.bin", i))
        gate.optimizer.load_state_dict(read(path, map_location=map_location, **kwargs))
    for i, scheduler in enumerate(parts.schedulers):
        scheduler.load_state_dict(read(_there(folder / numbered("scheduler.bin", i)), **kwargs))
    for i, loader in enumerate(parts.loaders):
        load_loader_state(loader, folder, i, rank)
    if scaler is not None:
        update_scale(parts.gates, scaler)  # nothing is left that the loaded state would be judged by
        scaler.load_state_dict(read(_there(folder / SCALER)))


def load_registered(folder: Path, objects: Sequence[HasState], **kwargs: Any) -> None:
    """
    The objects that the script has registered, in the order in which it did.

    Raises:
        CheckpointError: there are more or fewer files than objects.
    """
    files = [path for path in folder.iterdir() if path.match("custom_checkpoint_*.pkl")]
    if len(files) != len(objects):
        raise CheckpointError(
            f"{folder} holds the states of {len(files)} registered objects, but {len(objects)} are registered now. "
            "Call accelerator.register_for_checkpointing for the same objects, in the same order, before load_state."
        )
    for i, one in enumerate(objects):
        one.load_state_dict(read(_there(folder / custom_name(i)), **kwargs))


def _there(path: Path) -> Path:
    if not path.is_file():
        raise CheckpointPathError(
            f"{path.parent} holds no {path.name}. Prepare as many models, optimizers, schedulers and loaders as were "
            "prepared when it was saved."
        )
    return path
