"""Weights of a model in files of a limited size, in the layout of Hugging Face: shards, and an index beside them."""

from __future__ import annotations

import json
import logging
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..device.placement import for_files
from ..errors import CheckpointError, CheckpointPathError, UnknownWordError
from .folders import to_disk
from .tensors import without_ties, write_tensors

log = logging.getLogger(__name__)

_UNITS = {"": 1, "B": 1, **{f"{u}B": 1000 ** (i + 1) for i, u in enumerate("KMGT")}}
_UNITS |= {f"{u}IB": 1024 ** (i + 1) for i, u in enumerate("KMGT")}


@dataclass(frozen=True)
class WeightFileNames:
    """The names of weight files in one format."""

    stem: str
    suffix: str

    @property
    def whole(self) -> str:
        """The file when there is only one."""
        return self.stem + self.suffix

    @property
    def index(self) -> str:
        """The file that says which shard holds what."""
        return f"{self.whole}.index.json"

    def shard(self, number: int, of: int) -> str:
        """The file of one of several shards, counted from 1."""
        return f"{self.stem}-{number:05d}-of-{of:05d}{self.suffix}"

    def owns(self, name: str) -> bool:
        """A file of this name is part of such a layout."""
        stem, suffix = re.escape(self.stem), re.escape(self.suffix)
        return name == self.index or re.fullmatch(rf"{stem}(-\d{{5}}-of-\d{{5}})?{suffix}", name) is not None


SAFE = WeightFileNames("model", ".safetensors")
PICKLED = WeightFileNames("pytorch_model", ".bin")


def convert_file_size_to_int(size: int | str) -> int:
    """
    Bytes from a number, or from words like "10GB" (powers of 1000) and "200MiB" (powers of 1024).

    Raises:
        UnknownWordError: no such size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(size))
    if match is None or match[2].upper() not in _UNITS:
        raise UnknownWordError("max_shard_size", size, ["a number of bytes", '"500MB"', '"10GB"', '"2GiB"'])
    return int(float(match[1]) * _UNITS[match[2].upper()])


def split(tensors: Mapping[str, torch.Tensor], most: int) -> list[list[str]]:
    """Names, in order, in groups of at most `most` bytes; a larger tensor has a group of its own."""
    groups: list[list[str]] = [[]]
    size = 0
    for name, tensor in tensors.items():
        need = tensor.numel() * tensor.element_size()
        if groups[-1] and size + need > most:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += need
    return groups


def save_weights(
    state: Mapping[str, Any], folder: Path, max_shard_size: int | str = "10GB", safe_serialization: bool = True
) -> None:
    """
    Write a state dict into `folder`, each file whole or not at all; shards of an earlier save are removed.

    Raises:
        CheckpointPathError: `folder` is a file.
        CheckpointError: tensors without data (on the meta device), or what the format cannot hold.
        UnknownWordError: `max_shard_size` is no size.
    """
    most = convert_file_size_to_int(max_shard_size)
    if folder.exists() and not folder.is_dir():
        raise CheckpointPathError(f"cannot save the model to {folder}: it is a file. Give the name of a folder.")
    empty = [name for name, value in state.items() if isinstance(value, torch.Tensor) and value.is_meta]
    if empty:
        raise CheckpointError(f"{empty[0]} is on the meta device and has no data: load the model's weights first.")
    layout = SAFE if safe_serialization else PICKLED
    tensors, dropped = without_ties(state)
    if not safe_serialization:
        tensors, dropped = dict(for_files(state)), {}
    elif dropped:
        log.warning(
            "Removed shared tensor %s while saving: each is tied to a tensor that is saved, and loading ties it again.",
            sorted(dropped),
        )
    replace_files(folder, layout, lambda inside: _write(tensors, dropped, inside, layout, split(tensors, most)))


def replace_files(folder: Path, layout: WeightFileNames, write: Callable[[Path], list[str]]) -> None:
    """
    Put new files into a folder, each whole or not at all, in the place of those that an earlier save has left.

    Args:
        folder: is made if need be.
        layout: whose files they are.
        write: writes them into a folder; their names, in the order in which they are to appear.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".weights.", dir=folder))
    try:
        names = write(temporary)
        if len(names) > 1:  # without an index nobody takes new files and old ones together
            (folder / layout.index).unlink(missing_ok=True)
        for name in names:
            (temporary / name).replace(folder / name)
    finally:
        shutil.rmtree(temporary)
    for path in folder.iterdir():
        if layout.owns(path.name) and path.name not in names:
            path.unlink()


def _write(
    tensors: dict[str, torch.Tensor],
    dropped: dict[str, str],
    folder: Path,
    layout: WeightFileNames,
    groups: list[list[str]],
) -> list[str]:
    """Write the files; their names, in the order in which they are to appear."""
    single = len(groups) == 1
    names = [layout.whole if single else layout.shard(i + 1, len(groups)) for i in range(len(groups))]
    for name, group in zip(names, groups, strict=True):
        part = {key: tensors[key] for key in group}
        if layout is SAFE:
            write_tensors(part, folder / name, {new: old for new, old in dropped.items() if old in part})
        else:
            torch.save(part, folder / name)
        to_disk(folder / name)
    if not single:
        names.append(write_index(tensors, folder, layout, dict(zip(names, groups, strict=True))))
    return names


def write_index(
    tensors: Mapping[str, torch.Tensor], folder: Path, layout: WeightFileNames, groups: Mapping[str, list[str]]
) -> str:
    """Write which file holds what; the name of that file."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    places = {key: name for name, group in groups.items() for key in group}
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / layout.index).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    to_disk(folder / layout.index)
    return layout.index


def save_model(
    model: nn.Module, folder: Path, max_shard_size: int | str = "10GB", safe_serialization: bool = True
) -> None:
    """`save_weights` of a plain model."""
    save_weights(model.state_dict(), folder, max_shard_size, safe_serialization)
