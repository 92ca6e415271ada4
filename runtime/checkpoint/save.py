"""Files that exist whole or not at all."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..classes import MARK
from ..device.placement import for_files
from ..errors import CheckpointError
from .tensors import without_ties, write_tensors

log = logging.getLogger(__name__)


def save_whole(obj: Any, file: Any, safe_serialization: bool = False) -> None:
    """
    `torch.save` to a temporary file beside the target, then rename. A crash leaves the old file as it was.

    Args:
        obj: what to save.
        file: a path, or an open binary file (which is written to directly).
        safe_serialization: write safetensors; `obj` is a state dict then, and `file` a path. Of tensors that share
            memory one is written, with a warning that names the others.

    Raises:
        CheckpointError: the folder does not exist, or safetensors cannot hold `obj`.
    """
    obj = for_files(obj)
    if not isinstance(file, (str, os.PathLike)):
        if safe_serialization:
            raise CheckpointError("save(..., safe_serialization=True) needs a path, not an open file.")
        with _without_marks(obj):
            torch.save(obj, file)
        return
    path = Path(os.path.realpath(file))
    if not path.parent.is_dir():
        raise CheckpointError(f"cannot save to {path}: the folder {path.parent} does not exist. Create it first.")
    # In a folder of its own under the file's own name: torch writes that name into the archive, so that the bytes are
    # those that a plain torch.save to the path would have written.
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    temporary = folder / path.name
    try:
        if safe_serialization:
            _write_safe(obj, temporary)
        else:
            with _without_marks(obj):
                torch.save(obj, temporary)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        folder.rmdir()


@contextmanager
def _without_marks(obj: Any) -> Iterator[None]:
    """Whole models are saved as the script made them: a file has what it would have without us."""
    held = [obj, *obj.values()] if isinstance(obj, dict) else [obj]
    marked = [one for one in held if isinstance(one, torch.nn.Module) and one.__dict__.pop(MARK, False)]
    try:
        yield
    finally:
        for model in marked:
            model.__dict__[MARK] = True


def _write_safe(obj: Any, path: Path) -> None:
    if not isinstance(obj, Mapping):
        raise CheckpointError(f"safetensors holds a dict of tensors, not a {type(obj).__name__}.")
    tensors, dropped = without_ties(obj)
    if dropped:
        log.warning("Removed shared tensor %s while saving: loading ties each to the one that was saved.", dropped)
    write_tensors(tensors, path, dropped)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
