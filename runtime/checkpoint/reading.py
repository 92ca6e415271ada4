"""Reading files of torch without running anything that is in them."""

from __future__ import annotations

import codecs
import pickle
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from ..errors import CheckpointError, MixedUseError


def read(path: Path, map_location: Any = "cpu", numpy: bool = True, **kwargs: Any) -> Any:
    """
    `torch.load` with `weights_only=True`: tensors, plain values, and arrays of numpy.

    Args:
        path: the file.
        map_location: where tensors go.
        numpy: arrays of numpy are welcome, and numpy may be imported for them.
        kwargs: further arguments of `torch.load`.

    Raises:
        CheckpointError: the file is damaged, or holds objects that only code could rebuild.
        MixedUseError: `weights_only=False`.
    """
    if not kwargs.pop("weights_only", True):
        raise MixedUseError("checkpoints are loaded with weights_only=True only: a pickle can run any code.")
    try:
        with _arrays(numpy):
            return torch.load(path, map_location=map_location, weights_only=True, **kwargs)
    except pickle.UnpicklingError as error:
        reason = str(error).split("Re-running", 1)[0].strip().splitlines()[0]
        raise CheckpointError(
            f"{path} is damaged, or holds objects that cannot be loaded safely ({reason}). Save tensors and plain "
            "values only (state dicts do)."
        ) from error
    except (RuntimeError, EOFError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def check_readable(path: Path, what: str) -> None:
    """
    Make sure that a file that was just written can be read again; its tensors are not copied for that.

    Raises:
        CheckpointError: it holds objects that only code could rebuild.
    """
    try:
        read(path, numpy="numpy" in sys.modules, mmap=True)
    except CheckpointError as error:
        raise CheckpointError(
            f"the state of {what} could be saved, but could not be loaded again safely: {error}"
        ) from error


def _arrays(wanted: bool) -> AbstractContextManager[Any]:
    """A context in which arrays and scalars of numpy are known. None of these callables runs foreign code."""
    if not wanted:
        return torch.serialization.safe_globals([])
    import numpy as np

    core = getattr(np, "_core", None) or np.core
    types = [getattr(np.dtypes, name) for name in np.dtypes.__all__]
    known: list[Any] = [np.ndarray, np.dtype, codecs.encode, *types]
    for package in ("numpy._core", "numpy.core"):
        known.append((core.multiarray._reconstruct, f"{package}.multiarray._reconstruct"))
        known.append((core.multiarray.scalar, f"{package}.multiarray.scalar"))
    return torch.serialization.safe_globals(known)
