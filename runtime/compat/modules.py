"""Small questions about modules, types and dicts that scripts ask by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import nn

from ..device.kinds import current
from ..types import DistributedType

_STEP = 1024.0


def merge_dicts(source: dict[str, Any], destination: dict[str, Any]) -> dict[str, Any]:
    """Put what is in `source` into `destination`, dicts in dicts as well, and return that."""
    for key, value in source.items():
        if isinstance(value, dict):
            merge_dicts(value, destination.setdefault(key, {}))
        else:
            destination[key] = value
    return destination


def recursive_getattr(obj: Any, attr: str) -> Any:
    """`obj.a.b` for "a.b"."""
    return reduce(getattr, attr.split("."), obj)


def convert_bytes(size: float) -> str:
    """A number of bytes in words, e.g. "1.5 KB"."""
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if size < _STEP:
            return f"{round(size, 2)} {unit}"
        size /= _STEP
    return f"{round(size, 2)} PB"


def get_pretty_name(obj: Any) -> str:
    """How a function, a class or the class of an object is called."""
    named = obj if hasattr(obj, "__qualname__") or hasattr(obj, "__name__") else type(obj)
    return str(getattr(named, "__qualname__", None) or getattr(named, "__name__", named))


def dtype_byte_size(dtype: torch.dtype) -> float:
    """Bytes of one element; of a boolean, the eighth of one that it needs."""
    return 1 / 8 if dtype is torch.bool else float(dtype.itemsize)


def id_tensor_storage(tensor: torch.Tensor) -> tuple[torch.device, int, int]:
    """The same for tensors that share memory, and different for others that live: device, address, bytes."""
    storage = tensor.untyped_storage()
    return tensor.device, storage.data_ptr(), storage.nbytes()


def find_tied_parameters(model: nn.Module, **_: Any) -> list[list[str]]:
    """The names of parameters that are one object, group by group."""
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    return [sorted(names) for names in groups.values() if len(names) > 1]


def compute_module_sizes(
    model: nn.Module,
    dtype: torch.dtype | None = None,
    special_dtypes: Mapping[str, torch.dtype] | None = None,
    buffers_only: bool = False,
) -> dict[str, int]:
    """
    Bytes of a model and of each of its parts, by name; "" is the whole.

    Args:
        model: may be on the meta device.
        dtype: floating-point weights count as if they were of this type, where it is smaller than theirs.
        special_dtypes: types of single weights, by their names.
        buffers_only: leave parameters out.
    """
    sizes: dict[str, int] = defaultdict(int)
    tensors = [*model.named_buffers()] if buffers_only else [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in tensors:
        width = dtype_byte_size(tensor.dtype)
        if special_dtypes is not None and name in special_dtypes:
            width = dtype_byte_size(special_dtypes[name])
        elif dtype is not None and tensor.is_floating_point():
            width = min(width, dtype_byte_size(dtype))
        bytes_of_it = int(tensor.numel() * width)
        parts = name.split(".")
        for end in range(len(parts) + 1):
            sizes[".".join(parts[:end])] += bytes_of_it
    return dict(sizes)


def is_peft_model(model: Any) -> bool:
    """It is a model of the package peft."""
    return any(cls.__module__.split(".")[0] == "peft" and cls.__name__ == "PeftModel" for cls in type(model).__mro__)


def has_offloaded_params(module: nn.Module) -> bool:
    """Weights of it lie elsewhere until they are needed: never here; what Accelerate itself has hooked says so."""
    return bool(getattr(getattr(module, "_hf_hook", None), "offload", False))


def get_current_device_type() -> tuple[str, str]:
    """The accelerator of this machine ("cpu" without one), and how it is called in `DistributedType`."""
    kind = current()
    known = kind.word is not DistributedType.MULTI_ACCELERATOR
    return kind.name, str(kind.word) if known else f"MULTI_{kind.name.upper()}"
