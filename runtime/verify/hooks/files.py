"""What is saved: keys, shapes, types, classes and hashes of everything that goes through torch.save or safetensors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from torch import nn

from .figures import digest, norm
from .recorder import Recorder

_MOST_ITEMS = 5_000
_DEEPEST = 8

Note = Callable[[str], None]
"""Called with a path that is about to be written."""


def install(recorder: Recorder, note: Note) -> None:
    """Record `torch.save` from now on, and safetensors once it is imported."""
    original = torch.save

    @wraps(original)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        path = path_of(f)
        if path is not None and isinstance(f, (str, os.PathLike)):
            note(path)
        recorder.write("save", f=path, items=list(_limited(contents(obj))), at=recorder.line())
        return original(obj, f, *args, **kwargs)

    torch.save = save
    torch.serialization.save = save


def watch_safetensors(recorder: Recorder, note: Note) -> None:
    """Record what `safetensors.torch` saves."""
    module = sys.modules["safetensors.torch"]
    original = module.save_file

    @wraps(original)
    def save_file(tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        note(os.fspath(filename))
        recorder.write("save", f=path_of(filename), items=list(_limited(contents(tensors))), at=recorder.line())
        return original(tensors, filename, *args, **kwargs)

    module.save_file = save_file  # type: ignore[attr-defined]


def path_of(file: Any) -> str | None:
    """The path of what was given as a file; None for one in memory."""
    if isinstance(file, (str, os.PathLike)):
        return os.path.abspath(os.fsdecode(file))  # noqa: PTH100
    name = getattr(file, "name", None)
    if isinstance(name, str):
        return os.path.abspath(name)  # noqa: PTH100
    if isinstance(name, int):  # opened by its descriptor
        try:
            return os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except OSError:
            return None
    return None


def _limited(items: Iterator[list[Any]]) -> Iterator[list[Any]]:
    for count, item in enumerate(items):
        if count == _MOST_ITEMS:
            return
        yield item


def contents(obj: Any, key: str = "", depth: int = 0) -> Iterator[list[Any]]:
    """[key, class, shape, type, norm, hash] of every tensor; [key, class, value] of everything else."""
    name = f"{type(obj).__module__}.{type(obj).__qualname__}"
    if isinstance(obj, torch.Tensor):
        with torch.no_grad():
            size = norm([obj]) if obj.dtype != torch.bool else 0.0
            yield [key, name, list(obj.shape), str(obj.dtype), size, digest(obj).hex()]
    elif isinstance(obj, nn.Module):
        yield [key or ".", name, "module"]
        for inner, value in obj.state_dict().items():
            yield from contents(value, f"{key}.{inner}" if key else inner, depth + 1)
    elif isinstance(obj, dict) and depth < _DEEPEST:
        if not obj:
            yield [key, name, "{}"]
        for inner, value in obj.items():
            yield from contents(value, f"{key}/{inner}" if key else str(inner), depth + 1)
    elif isinstance(obj, (list, tuple)) and depth < _DEEPEST:
        if not obj:
            yield [key, name, "[]"]
        for index, value in enumerate(obj):
            yield from contents(value, f"{key}/{index}" if key else str(index), depth + 1)
    elif isinstance(obj, (int, float, bool, str, type(None))):
        yield [key, name, obj]
    else:
        yield [key, name, ""]
