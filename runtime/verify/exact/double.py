"""float64 everywhere: default type, types that the script names, and no autocast."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_LEGACY = ("FloatTensor", "HalfTensor", "BFloat16Tensor")
_CASTS = ("float", "half", "bfloat16")


class InDouble(TorchFunctionMode):
    """Whatever asks for a narrower floating point type gets float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _CASTS and len(args) == 1:
            return args[0].double()
        return func(*map(_widened, args), **{key: _widened(value) for key, value in (kwargs or {}).items()})


def _widened(argument: Any) -> Any:
    if isinstance(argument, torch.dtype) and argument in _NARROW:
        return torch.float64
    if isinstance(argument, str) and argument.startswith("torch.") and argument.endswith(_LEGACY):
        return f"{argument.rpartition('.')[0]}.DoubleTensor"
    return argument


def install() -> None:
    """Compute in float64 from now on, in this thread."""
    torch.set_default_dtype(torch.float64)
    for module in (torch, torch.cuda):
        for name in _LEGACY:
            if hasattr(module, name) and hasattr(module, "DoubleTensor"):
                setattr(module, name, module.DoubleTensor)
    InDouble().__enter__()  # type: ignore[no-untyped-call]
    made = torch.from_numpy

    def from_numpy(array: Any) -> torch.Tensor:
        tensor = made(array)
        return tensor.double() if tensor.dtype in _NARROW else tensor

    torch.from_numpy = from_numpy  # type: ignore[assignment]
    begin = torch.autocast.__init__

    def off(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **{**kwargs, "enabled": False} if len(args) < 3 else kwargs)
        self._enabled = False

    torch.autocast.__init__ = off  # type: ignore[method-assign]
    scaler = torch.amp.GradScaler.__init__

    def unscaled(self: Any, *args: Any, **kwargs: Any) -> None:
        scaler(self, *args, **kwargs)
        self._enabled = False

    torch.amp.GradScaler.__init__ = unscaled  # type: ignore[method-assign]
