"""
State dicts as safetensors files.

That format keeps no two names for one memory: of tied tensors one is written, and the others are noted beside it and
come back on loading.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..device.placement import for_files
from ..errors import CheckpointError

log = logging.getLogger(__name__)


def without_ties(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """
    Separate a state dict into tensors that share no memory, and the names that were left out.

    Returns:
        The tensors, and for every name that was left out the name whose tensor it is.

    Raises:
        CheckpointError: an entry is no tensor.
    """
    strangers = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if strangers:
        raise CheckpointError(
            f"safetensors holds only tensors, and these are not tensors: {', '.join(strangers)}. Save with "
            "safe_serialization=False."
        )
    state = for_files(state)
    first: dict[Any, str] = {}
    dropped: dict[str, str] = {}
    for name in sorted(state):
        tensor = state[name]
        key = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and tensor.device.type != "meta" and key in first:
            dropped[name] = first[key]
        else:
            first.setdefault(key, name)
    kept = {name: value.detach() for name, value in state.items() if name not in dropped}
    return _apart(kept), dropped


def _apart(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Views that overlap, or that are not dense, as tensors of their own."""
    owners: dict[Any, int] = {}
    for tensor in tensors.values():
        owners[_storage(tensor)] = owners.get(_storage(tensor), 0) + 1
    return {
        name: tensor.clone(memory_format=torch.contiguous_format)
        if owners[_storage(tensor)] > 1 or not tensor.is_contiguous()
        else tensor
        for name, tensor in tensors.items()
    }


def _storage(tensor: torch.Tensor) -> Any:
    return (tensor.device, tensor.untyped_storage().data_ptr() or id(tensor))


def write_tensors(tensors: Mapping[str, torch.Tensor], path: Path, dropped: Mapping[str, str] | None = None) -> None:
    """
    Write tensors that share no memory; the names in `dropped` are noted in the header.

    Raises:
        CheckpointError: the format cannot hold one of them.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), str(path), metadata={"format": "pt", **(dropped or {})})
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"cannot write {path}: {error}") from error


def read_tensors(path: Path, device: str = "cpu") -> dict[str, torch.Tensor]:
    """
    The tensors of a file, under all the names that they had.

    Raises:
        CheckpointError: it is no safetensors file, or a damaged one.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt", device=device) as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
            notes = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    for name, kept in notes.items():
        if kept in state and name not in state:
            state[name] = state[kept]
    return state


def with_ties(state: dict[str, torch.Tensor], model: nn.Module) -> dict[str, torch.Tensor]:
    """Fill in names that are missing because the model has tied them to names that exist."""
    groups: dict[int, list[str]] = {}
    for name, tensor in _named(model):
        groups.setdefault(id(tensor), []).append(name)
    complete = dict(state)
    for names in groups.values():
        present = [name for name in names if name in state]
        for name in names:
            if present and name not in state:
                complete[name] = state[present[0]]
    return complete


def _named(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]


def plain_names(state: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """The state dict of a wrapped model (DDP, torch.compile) under the names of the plain one."""
    own = list(model.state_dict())
    for prefix in ("module.", "_orig_mod."):
        if state and all(name.startswith(prefix) for name in state) and not all(n.startswith(prefix) for n in own):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state
