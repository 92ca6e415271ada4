"""
Extending the class of one model instance, as `fully_shard` does.

The model stays the object that the script made: attributes, aliases, `isinstance`, names and state dicts are its own.
Only calling it goes through the engine, and in mixed precision the methods that compute with its weights. Copies and
pickles are of the script's class, and know nothing of the engine.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from dis import opname
from functools import wraps
from types import FrameType, FunctionType
from typing import Any, Protocol

import torch
from torch import nn

from ..classes import Front, in_front
from ..errors import MixedUseError

log = logging.getLogger(__name__)


class Engine(Protocol):
    """What goes around the calls of a model."""

    @property
    def mixed(self) -> bool:
        """Methods beside `forward` go through `around`."""

    def call(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `call(*args, **kwargs)`, the model's own `__call__`."""

    def around(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run `call(*args, **kwargs)`, another method of the model."""


class _Itself:
    """
    `model.module` is the model, for code that was written for a wrapper.

    Who asks first whether there is one gets no for an answer, as from the plain model: `hasattr(model, "module")`, and
    `while hasattr(model, "module"): model = model.module`, which would never end. What code spells is no question; what
    a function looks for by its name is one.
    """

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        own = instance.__dict__.get("_modules", {}).get("module")
        if own is None and not _spelled(sys._getframe(1)):
            raise AttributeError("module")
        return instance if own is None else own


def _spelled(frame: FrameType) -> bool:
    """The instruction that a frame is at reads an attribute."""
    return opname[frame.f_code.co_code[frame.f_lasti]] in ("LOAD_ATTR", "LOAD_METHOD")


class Extended(Front):
    """What an extended model does differently. Comes before the script's class in the order of lookup."""

    _torchlift_engine: Engine

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._torchlift_engine.call(super().__call__, args, kwargs)  # type: ignore[misc]


def extend(model: nn.Module, engine: Engine, front: type[Extended] = Extended) -> bool:
    """
    Send the calls of this instance through `engine`.

    A class that cannot be extended (a scripted module) is left alone: its gradients are exchanged all the same. So is a
    model whose class is extended already: another accelerator has prepared it.

    Args:
        model: of the script.
        engine: goes around its calls.
        front: what the model does differently.

    Returns:
        Whether its calls go through this engine, which then lives as long as the model.

    Raises:
        MixedUseError: that one has another precision.
    """
    cls = type(model)
    if isinstance(model, Extended):
        if model._torchlift_engine.mixed != engine.mixed:
            raise MixedUseError(
                f"this {cls.__name__} was prepared by another Accelerator, with another mixed_precision. Prepare it "
                "once, or give both the same."
            )
        return False
    if isinstance(model, torch.jit.ScriptModule):
        log.warning("%s is a scripted module: it runs in the precision that it was made for", cls.__name__)
        return False
    attributes: dict[str, Any] = {"_torchlift_engine": engine}
    if not hasattr(model, "module"):
        attributes["module"] = _Itself()
    if engine.mixed:
        attributes.update({name: _around(engine, getattr(cls, name)) for name in computing_methods(model)})
    try:
        model.__class__ = in_front(front, cls, **attributes)
    except TypeError as refusal:
        log.warning(
            "the class %s cannot be extended (%s): it runs in the precision of its weights", cls.__name__, refusal
        )
        return False
    return True


def computing_methods(model: nn.Module) -> list[str]:
    """The methods of the script's own classes that name a layer or a weight of the model, beside `forward`."""
    parts = {*model._modules, *model._parameters}
    found = {}
    for cls in type(model).__mro__:
        if cls is nn.Module:
            break
        if cls.__module__.startswith("torch."):
            continue
        for name, value in vars(cls).items():
            plain = isinstance(value, FunctionType) and not name.startswith("_") and name != "forward"
            if plain and parts & set(value.__code__.co_names):
                found[name] = True
    return list(found)


def mark(model: nn.Module, names: Iterable[str]) -> None:
    """
    Send more methods of an extended model through its engine; a model without one needs nothing.

    Raises:
        AttributeError: the model has no such method.
    """
    for name in names:
        method = getattr(type(model), name)
        if isinstance(model, Extended) and model._torchlift_engine.mixed and name not in vars(type(model)):
            setattr(type(model), name, _around(model._torchlift_engine, method))


def _around(engine: Engine, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return engine.around(function, (self, *args), kwargs)

    return method


def restore(model: nn.Module) -> None:
    """Give a model its own class back."""
    if isinstance(model, Extended):
        model.__class__ = model._torchlift_class
