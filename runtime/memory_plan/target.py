"""What is to be estimated: the weights of a model that a function makes, or those of safetensors files."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..device.empty import init_empty_weights
from ..errors import ConfigError

_LENGTH = 8
"""Bytes of the number that a safetensors file begins with: the length of its header."""
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


@dataclass(frozen=True)
class MeasuredWeight:
    """One tensor of a model."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    parameter: bool
    """Else it is a buffer, which every process keeps whole."""
    trained: bool


@dataclass(frozen=True)
class MeasuredModel:
    """What is known of a model."""

    name: str
    weights: tuple[MeasuredWeight, ...]
    module: nn.Module | None
    """None where only files are known."""


def read_target(text: str) -> MeasuredModel:
    """
    Find a model.

    Args:
        text: "package.module:function", "file.py:Class", "file.py:make(layers=2)", or a folder of safetensors files, or
            one of these.

    Raises:
        ConfigError: there is none.
    """
    path = Path(text)
    if path.suffix == ".safetensors" or path.is_dir():
        return _of_files(path)
    place, colon, call = text.partition(":")
    if not colon or not call:
        raise ConfigError(
            f"{text!r} is neither a folder of safetensors files nor MODULE:FACTORY. Write for instance "
            "mypackage.models:Net or models.py:build(layers=2)."
        )
    return _of_factory(text, place, *parse_call(call))


def parse_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """
    A name, with arguments after it if need be: `build(2, wide=True)`.

    Raises:
        ConfigError: it is nothing of that kind, or an argument is no literal.
    """
    try:
        tree = ast.parse(text, mode="eval").body
        if not isinstance(tree, ast.Call):
            return ast.unparse(tree), [], {}
        positional = [ast.literal_eval(one) for one in tree.args]
        return ast.unparse(tree.func), positional, {str(one.arg): ast.literal_eval(one.value) for one in tree.keywords}
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{text!r} cannot be read: write NAME or NAME(layers=2), with literal values.") from error


def _of_factory(text: str, place: str, name: str, positional: list[Any], named: dict[str, Any]) -> MeasuredModel:
    found: Any = _module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{place} has no {name!r}.")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{name} in {place} is a {type(found).__name__}; it must be a class or a function.")
    try:
        model = _without_memory(found, positional, named)
    except (TypeError, ValueError, RuntimeError, KeyError, AttributeError, OSError) as error:
        raise ConfigError(f"{text} failed: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise ConfigError(f"{text} gave a {type(model).__name__}; it must give a torch.nn.Module.")
    return MeasuredModel(type(model).__name__, tuple(_weights(model)), model)


def _without_memory(make: Any, positional: list[Any], named: dict[str, Any]) -> Any:
    try:
        with init_empty_weights(include_buffers=True):
            return make(*positional, **named)
    except (RuntimeError, NotImplementedError):
        # it computes with tensors that are no weights: these are real then, and each weight until it is registered
        with init_empty_weights():
            return make(*positional, **named)


def _module(place: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        file = Path(place)
        if not file.is_file():
            raise ConfigError(f"there is no file {place}.")
        sys.path.insert(0, str(file.resolve().parent))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None and spec.loader is not None  # the name of a Python file always has one
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(file.stem, module)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise ConfigError(f"{place} cannot be imported: {error}") from error
    return module


def _weights(model: nn.Module) -> Iterator[MeasuredWeight]:
    for name, one in model.named_parameters():
        yield MeasuredWeight(name, tuple(one.shape), one.dtype, True, one.requires_grad)
    for name, buffer in model.named_buffers():
        yield MeasuredWeight(name, tuple(buffer.shape), buffer.dtype, False, False)


def _of_files(path: Path) -> MeasuredModel:
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors")) if path.is_dir() else []
    if not files:
        raise ConfigError(f"there are no safetensors files at {path}.")
    weights = [weight for file in files for weight in _header(file)]
    twice = (
        {one.name for one in weights if sum(other.name == one.name for other in weights) > 1} if files[1:] else set()
    )
    if twice:
        raise ConfigError(
            f"several files in {path} have a tensor {min(twice)!r}: they are not parts of one model. Name one file."
        )
    return MeasuredModel(path.name, tuple(weights), None)


def _header(file: Path) -> Iterator[MeasuredWeight]:
    """What a file says of its tensors: its first bytes are enough."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(_LENGTH))
            if length > file.stat().st_size:
                raise ValueError("its header is longer than the file")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        for name, one in header.items():
            dtype = _TYPES[one["dtype"]]
            # weights of whole numbers are counters and tables: nobody trains them
            yield MeasuredWeight(name, tuple(one["shape"]), dtype, dtype.is_floating_point, dtype.is_floating_point)
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} cannot be read as a safetensors file: {error}") from error
