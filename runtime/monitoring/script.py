"""Where the script is, and what it calls its things: for messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..process.call_log import frames


def line() -> str:
    """File and line of the script; empty when it is not on the way here."""
    for frame in frames():
        return f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return ""


def variable_of(fits: Callable[[Any], bool]) -> tuple[str, Any]:
    """
    The first variable of the script, from the innermost frame on, whose value fits; an attribute of one, too.

    Returns:
        How the script writes it, and the value; an empty text and None when there is none.
    """
    seen: set[int] = set()
    for frame in frames():
        for names in (frame.f_locals, frame.f_globals):
            if id(names) in seen:
                continue
            seen.add(id(names))
            for name, value in list(names.items()):
                if fits(value):
                    return name, value
            for name, value in list(names.items()):
                found = "" if isinstance(value, type) else _attribute(value, fits)
                if found:
                    return f"{name}.{found}", getattr(value, found)
    return "", None


def _attribute(value: Any, fits: Callable[[Any], bool]) -> str:
    inner = getattr(value, "__dict__", None)
    if not isinstance(inner, dict) or isinstance(value, nn.Module) or type(value).__name__ == "module":
        return ""
    return next((name for name, one in list(inner.items()) if fits(one)), "")


def model_with(parameter: torch.Tensor) -> tuple[str, str]:
    """What the script calls the model that holds a parameter, and its class; empty where they are not found."""

    def holds(value: Any) -> bool:
        return isinstance(value, nn.Module) and any(one is parameter for one in value.parameters())

    name, model = variable_of(holds)
    return name, type(model).__name__ if name else ""
