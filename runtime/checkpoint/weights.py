"""Loading weights of a model, from one file, from shards, or from a folder that holds either."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..config.project import PathLike
from ..device.kinds import current
from ..errors import CheckpointError, CheckpointPathError, NotAvailableYet
from .reading import read
from .shards import PICKLED, SAFE
from .tensors import plain_names, read_tensors, with_ties

log = logging.getLogger(__name__)

_INDEX = ".index.json"
_NO_MEMORY = ("disk", "meta")


def load_state_dict(
    checkpoint_file: PathLike, device_map: Mapping[str, int | str | torch.device] | None = None
) -> dict[str, Any]:
    """
    The state dict in one file, of safetensors or of torch.

    Args:
        checkpoint_file: the file.
        device_map: the tensors go to its device, if it names one; else they are on the CPU.

    Raises:
        CheckpointError: the file is damaged, or holds more than tensors and plain values.
    """
    file = Path(checkpoint_file)
    named = {str(place) for place in (device_map or {}).values()} - {"disk"}
    device = torch.device(next(iter((device_map or {}).values()))) if len(named) == 1 else torch.device("cpu")
    if file.suffix == ".safetensors":
        return dict(read_tensors(file, str(device)))
    state = read(file, map_location=device)
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{file} holds a {type(state).__name__}, not a state dict.")
    return dict(state)


def weight_files(checkpoint: Path) -> list[Path]:
    """
    The files of a checkpoint: itself, the shards that its index lists, or what its folder holds.

    Raises:
        CheckpointPathError: there is nothing, or more than one index.
        CheckpointError: a shard is missing.
    """
    if checkpoint.is_dir():
        found = [checkpoint / name for name in (SAFE.whole, PICKLED.whole) if (checkpoint / name).is_file()]
        indexes = sorted(checkpoint.glob(f"*{_INDEX}"))
        if not found and len(indexes) == 1:
            return weight_files(indexes[0])
        if not found:
            what = f"{len(indexes)} of them" if indexes else "none"
            raise CheckpointPathError(
                f"{checkpoint} holds no {SAFE.whole} and no {PICKLED.whole}, and instead of one index {what}. Give the "
                "path of the file or of its index."
            )
        return found[:1]
    if not checkpoint.is_file():
        raise CheckpointPathError(f"there is no file or folder {checkpoint} to load weights from.")
    if not checkpoint.name.endswith(_INDEX):
        return [checkpoint]
    try:
        index = json.loads(checkpoint.read_text())
        names = sorted(set(index.get("weight_map", index).values()))
    except (ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{checkpoint} is not an index of shards: {error}") from error
    missing = [name for name in names if not (checkpoint.parent / name).is_file()]
    if missing:
        raise CheckpointError(f"{checkpoint} lists {', '.join(missing)}, which are not in its folder.")
    return [checkpoint.parent / name for name in names]


def load_checkpoint_in_model(
    model: nn.Module,
    checkpoint: PathLike,
    device_map: Mapping[str, int | str | torch.device] | None = None,
    offload_folder: PathLike | None = None,
    dtype: torch.dtype | str | None = None,
    offload_state_dict: bool = False,
    offload_buffers: bool = False,
    keep_in_fp32_modules: list[str] | None = None,
    offload_8bit_bnb: bool = False,
    strict: bool = False,
    full_state_dict: bool = True,
    broadcast_from_rank0: bool = False,
) -> None:
    """
    Load weights into a model, in place.

    Args:
        model: with a `device_map`, it may be on the meta device.
        checkpoint: a file, an index of shards, or a folder that holds one of them.
        device_map: where modules go, by the beginning of their names; "" is the whole model. Without it, weights stay
            where the model has them.
        offload_folder, offload_buffers, offload_8bit_bnb: not available yet.
        full_state_dict, broadcast_from_rank0: without effect: every process reads the weights, all of them.
        offload_state_dict: without effect: files are read one after the other.
        dtype: the type of floating-point weights; the model's own without it.
        keep_in_fp32_modules: not available yet.
        strict: names that one has and the other has not are an error, instead of a warning.

    Raises:
        CheckpointPathError: nothing to load there.
        CheckpointError: damaged or unsafe files.
        NotAvailableYet: weights that are to stay on the disk.
        RuntimeError: shapes differ, or with `strict` names.
    """
    if offload_folder or offload_buffers or offload_8bit_bnb or keep_in_fp32_modules:
        raise NotAvailableYet("load_checkpoint_in_model with offloading", "Give device_map only.")
    places = {name: _device(place) for name, place in (device_map or {}).items()}
    ties = _ties(model)
    state: dict[str, Any] = {}
    for file in weight_files(Path(checkpoint)):
        state.update(load_state_dict(file))
    state = with_ties(plain_names(state, model), model)
    wanted: torch.dtype | None = getattr(torch, dtype.removeprefix("torch.")) if isinstance(dtype, str) else dtype
    own = model.state_dict(keep_vars=True)
    placed = {
        name: _placed(value, own.get(name), _place(name, places), wanted) if isinstance(value, torch.Tensor) else value
        for name, value in state.items()
    }
    outcome = model.load_state_dict(placed, strict=strict, assign=bool(places) or dtype is not None)
    _tie_again(model, ties)
    if places:
        _move_what_is_left(model, places)
    if outcome.unexpected_keys:
        log.warning(
            "Some weights of the checkpoint at %s were not used when initializing %s: %s",
            checkpoint,
            type(model).__name__,
            sorted(outcome.unexpected_keys),
        )
    if outcome.missing_keys:
        log.warning("Some weights of the model are not in %s: %s", checkpoint, sorted(outcome.missing_keys))


def _device(place: int | str | torch.device) -> torch.device:
    if place in _NO_MEMORY:
        raise NotAvailableYet(f'a device_map with "{place}"', "Name a device that holds the weights.")
    if isinstance(place, int):
        return torch.device(current().name, place)
    return torch.device(place)


def _place(name: str, places: Mapping[str, torch.device]) -> torch.device | None:
    """The device of the longest beginning of `name` in the map."""
    while name and name not in places:
        name = name.rpartition(".")[0]
    return places.get(name)


def _placed(
    value: torch.Tensor, own: torch.Tensor | None, place: torch.device | None, dtype: torch.dtype | None
) -> torch.Tensor:
    if value.is_floating_point():
        kept = own.dtype if own is not None else value.dtype
        value = value.to(kept if dtype is None else dtype)
    return value if place is None else value.to(place)


def _ties(model: nn.Module) -> list[list[str]]:
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _tie_again(model: nn.Module, ties: list[list[str]]) -> None:
    """Parameters that were one object before weights were assigned are one again."""
    for first, *others in ties:
        shared = model.get_parameter(first)
        for name in others:
            path, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(path), leaf, shared)


def _move_what_is_left(model: nn.Module, places: Mapping[str, torch.device]) -> None:
    """Tensors that the checkpoint does not hold go to their places too, unless they have no data."""
    for name, tensor in _every(model):
        place = _place(name, places)
        if place is not None and not tensor.is_meta and tensor.device != place:
            tensor.data = tensor.data.to(place)


def _every(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()
