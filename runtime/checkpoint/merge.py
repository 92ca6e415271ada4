"""One file of weights from a sharded checkpoint of `torch.distributed.checkpoint`."""

from __future__ import annotations

import pickle
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import torch

from ..errors import CheckpointError, CheckpointPathError
from .save import save_whole
from .shards import PICKLED, SAFE

_LISTING = ".metadata"
"""The file of such a folder that says what is where."""


def merge(
    folder: Path, out: Path, safe_serialization: bool = True, part: str | None = None, remove: bool = False
) -> Path:
    """
    Join the weights of a sharded checkpoint. The file is there whole, or not at all.

    Args:
        folder: what `torch.distributed.checkpoint.save` has written; also by Accelerate.
        out: a folder, for `model.safetensors` or `pytorch_model.bin` in it; or a file that ends with .safetensors,
            .bin, .pt or .pth.
        safe_serialization: write safetensors, where `out` is a folder.
        part: which entry of the saved dict is meant, where it has several: {"model": ..., "optimizer": ...}.
        remove: remove the folder in the end.

    Returns:
        The file.

    Raises:
        CheckpointPathError: the folder is none, or has no checkpoint in it.
        CheckpointError: the checkpoint is damaged, or has more in it than weights.
    """
    folder = Path(folder)
    state = _read(folder, part)
    target, safe = _target(Path(out), safe_serialization)
    if folder.resolve() in target.resolve().parents and remove:
        raise CheckpointPathError(f"{target} is in the folder that is to be removed. Choose another place.")
    target.parent.mkdir(parents=True, exist_ok=True)
    save_whole(state, target, safe)
    if remove:
        shutil.rmtree(folder)
    return target


def _target(out: Path, safe: bool) -> tuple[Path, bool]:
    if out.suffix in (".safetensors", ".bin", ".pt", ".pth") and not out.is_dir():
        return out, out.suffix == ".safetensors"
    if out.exists() and not out.is_dir():
        raise CheckpointPathError(
            f"{out} is neither a folder nor a file that ends with .safetensors, .bin, .pt or .pth."
        )
    return out / (SAFE.whole if safe else PICKLED.whole), safe


def _read(folder: Path, part: str | None) -> dict[str, torch.Tensor]:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    _check(folder)
    reader = FileSystemReader(folder)
    try:
        listing = reader.read_metadata()
    except (OSError, EOFError, pickle.UnpicklingError, AttributeError, ImportError) as error:
        raise CheckpointError(f"{folder / _LISTING} cannot be read: {error}") from error
    names = _names(listing, folder, part)
    stored: Mapping[str, Any] = listing.state_dict_metadata
    state = {key: torch.empty(stored[key].size, dtype=stored[key].properties.dtype) for key in names}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # that is meant
            load(state, storage_reader=reader, no_dist=True)
    except (CheckpointException, OSError, RuntimeError, ValueError, EOFError) as error:
        raise CheckpointError(f"the checkpoint in {folder} is damaged: {_said(error)}") from error
    return {names[key]: tensor for key, tensor in state.items()}


def _said(error: BaseException) -> str:
    """What was said first about the damage, without the tracebacks of all processes."""
    failures = getattr(error, "failures", None) or {}
    first = next(iter(failures.values()), None)
    found = first[0] if isinstance(first, tuple) and first else error
    return str(found).strip().partition("\n")[0] or type(found).__name__


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise CheckpointPathError(f"there is no folder {folder}.")
    if (folder / _LISTING).is_file():
        return
    inside = sorted(one.parent.name for one in folder.glob(f"*/{_LISTING}"))
    hint = f" These folders in it are: {', '.join(inside)}. Name one of them." if inside else ""
    raise CheckpointPathError(f"{folder} is no checkpoint of torch.distributed.checkpoint: it has no {_LISTING}.{hint}")


def _names(listing: Any, folder: Path, part: str | None) -> dict[str, str]:
    """
    The tensors that are wanted: their keys in the checkpoint, and their names in the file.

    A state dict that was saved under one name, as {"model": state_dict}, is meant without that name.
    """
    stored = listing.state_dict_metadata
    paths = {key: tuple(map(str, (listing.planner_data or {}).get(key, (key,)))) for key in stored}
    for name in part.split(".") if part else ():
        known = sorted({path[0] for path in paths.values() if len(path) > 1})
        if name not in known:
            raise CheckpointError(
                f"the checkpoint in {folder} has no part {part!r}; it has {_listed(known) or 'no parts'}."
            )
        paths = {key: path[1:] for key, path in paths.items() if path[0] == name and len(path) > 1}
    while any(len(path) > 1 for path in paths.values()):
        entries = sorted({path[0] for path in paths.values()})
        if len(entries) > 1:
            raise CheckpointError(
                f"the checkpoint in {folder} has more in it than weights: {_listed(entries)}. Name the entry that has "
                "the weights, with --part."
            )
        paths = {key: path[1:] for key, path in paths.items()}
    wrong = list(_unfit(paths, stored))
    if wrong:
        raise CheckpointError(f"the checkpoint in {folder} has entries that are no tensors: {_listed(wrong)}.")
    missing = [key for key in paths if sum(prod(one.sizes) for one in stored[key].chunks) != prod(stored[key].size)]
    if missing:
        raise CheckpointError(f"the checkpoint in {folder} is incomplete: it lacks parts of {_listed(missing)}.")
    return {key: path[0] for key, path in paths.items()}


def _unfit(paths: Iterable[str], stored: Mapping[str, Any]) -> Iterator[str]:
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    return (key for key in paths if not isinstance(stored[key], TensorStorageMetadata))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
