"""Writing the weights of a sharded model as safetensors: tensor by tensor, so that no process holds all of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import nn

from ..collectives.objects import broadcast_objects
from ..collectives.world import World
from ..errors import CheckpointError, CheckpointPathError
from ..strategies.full_state import full_state, meet, whole_tensor
from .folders import to_disk
from .shards import SAFE, convert_file_size_to_int, replace_files, save_weights, split, write_index

log = logging.getLogger(__name__)

_KINDS = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""The names that safetensors has for types. Larger ones are written first, so that each begins where it may."""
_ALIGNED = 8

Pieces = Iterator[tuple[str, torch.Tensor | None]]


def save_in_pieces(
    world: World, model: nn.Module, folder: Path, max_shard_size: int | str, safe_serialization: bool
) -> None:
    """
    Write the weights of a sharded model into `folder`, as `save_weights` does, on rank 0. All processes call it.

    Args:
        world: the processes.
        model: sharded.
        folder: is made if need be; each file is there whole or not at all.
        max_shard_size: of one file.
        safe_serialization: False: pickles of torch, for which rank 0 holds the whole model.

    Raises:
        CheckpointError: rank 0 could not write. All processes raise it.
    """
    most = convert_file_size_to_int(max_shard_size)
    failure: Exception | None = None
    if safe_serialization:
        kept, dropped = _without_ties(model)
        groups = [sorted(group, key=lambda name: _rank(kept[name], name)) for group in split(kept, most)]
        meet(world, "save_model")
        pieces: Pieces = ((name, whole_tensor(world, kept[name])) for group in groups for name in group)
        if world.rank == 0:
            try:
                _write(folder, kept, dropped, groups, pieces)
            except Exception as error:  # noqa: BLE001  (the others are still to be served)
                failure = error
        for _ in pieces:
            pass
    else:
        state = full_state(world, model, "save_model")
        if world.rank == 0:
            try:
                save_weights(state, folder, most, False)
            except Exception as error:  # noqa: BLE001
                failure = error
    (text,) = broadcast_objects(world, [None if failure is None else str(failure)])
    if text is not None:
        raise failure or CheckpointError(f"the model was not saved; process 0 says: {text}")


def _rank(tensor: torch.Tensor, name: str) -> tuple[int, str]:
    return list(_KINDS).index(tensor.dtype), name


def _without_ties(model: nn.Module) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """What is written, and for every other name the name that it is tied to."""
    state = model.state_dict(keep_vars=True)
    strangers = [n for n, one in state.items() if not isinstance(one, torch.Tensor) or one.dtype not in _KINDS]
    if strangers:
        raise CheckpointError(f"safetensors cannot hold {', '.join(strangers)}. Save with safe_serialization=False.")
    first: dict[int, str] = {}
    for name in sorted(state):
        first.setdefault(id(state[name]), name)
    kept = {name: one for name, one in state.items() if first[id(one)] == name}
    return kept, {name: first[id(one)] for name, one in state.items() if name not in kept}


def _write(
    folder: Path, kept: dict[str, torch.Tensor], dropped: dict[str, str], groups: list[list[str]], pieces: Pieces
) -> None:
    if folder.exists() and not folder.is_dir():
        raise CheckpointPathError(f"cannot save the model to {folder}: it is a file. Give the name of a folder.")
    if dropped:
        log.warning(
            "Removed shared tensor %s while saving: each is tied to a tensor that is saved, and loading ties it again.",
            sorted(dropped),
        )
    count = len(groups)
    names = [SAFE.whole] if count == 1 else [SAFE.shard(i + 1, count) for i in range(count)]

    def write(inside: Path) -> list[str]:
        for name, group in zip(names, groups, strict=True):
            ties = {new: old for new, old in dropped.items() if old in group}
            _write_file(inside / name, {key: kept[key] for key in group}, ties, pieces)
            to_disk(inside / name)
        if count == 1:
            return names
        return [*names, write_index(kept, inside, SAFE, dict(zip(names, groups, strict=True)))]

    replace_files(folder, SAFE, write)


def _write_file(path: Path, tensors: Mapping[str, torch.Tensor], ties: Mapping[str, str], pieces: Pieces) -> None:
    """One file: a header that says where each tensor is, and the tensors in its order, as they come."""
    header: dict[str, object] = {"__metadata__": {"format": "pt", **ties}}
    start = 0
    for name, tensor in tensors.items():
        end = start + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNED)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for name in tensors:
            came, value = next(pieces)
            assert came == name and value is not None
            if value.numel():
                stream.write(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
