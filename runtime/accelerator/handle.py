"""What an accelerator is in a pickle: a handle that finds it again, and nothing of what it holds."""

from __future__ import annotations

import weakref
from itertools import count
from typing import Any
from uuid import uuid4

from . import state

_PROCESS = uuid4().hex
_NUMBERS = count()
_LIVING: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def name_of(accelerator: Any) -> str:
    """A name under which the accelerator is found in this process, and nothing in any other."""
    for name, one in _LIVING.items():
        if one is accelerator:
            return name
    name = f"{_PROCESS}/{next(_NUMBERS)}"
    _LIVING[name] = accelerator
    return name


def found_again(name: str) -> Any:
    """The accelerator of that name, else the one of this process; a handle where there is none yet."""
    found = _LIVING.get(name)
    if found is None and state.GradientState().initialized:
        found = state.latest()
    return AcceleratorHandle(name) if found is None else found


class AcceleratorHandle:
    """Stands for the accelerator of this process, which is looked for when something is asked of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(state.latest(), name)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return found_again, (self._name,)
