"""What cannot be prepared, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from types import GeneratorType
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from ..collectives.world import World
from ..data.loader import is_prepared
from ..errors import MixedUseError, WrongKindError
from ..strategies.unwrap import device_maps, spread

_PREPARED_KINDS = (nn.Module, Optimizer, DataLoader, LRScheduler)


def check_unknown(thing: Any) -> None:
    """What is not known comes back as it is, unless what it holds, or makes, should have been prepared."""
    if isinstance(thing, type) and issubclass(thing, _PREPARED_KINDS):
        raise WrongKindError(f"prepare was given the class {thing.__name__}. Give it an object: {thing.__name__}(...).")
    if isinstance(thing, Iterator) and not _of_prepared(thing):
        raise WrongKindError(
            f"prepare was given a {type(thing).__name__}, whose items it cannot replace. Make a list of them first."
        )
    if isinstance(thing, (set, frozenset)) and any(isinstance(one, _PREPARED_KINDS) for one in thing):
        raise WrongKindError(f"prepare was given a {type(thing).__name__}, which has no order. Make a list of it.")


def _of_prepared(made: Iterator[Any]) -> bool:
    """Whether a generator was given loaders that are prepared, and no other: ``cycle(accelerator.prepare(loader))``."""
    frame = made.gi_frame if isinstance(made, GeneratorType) else None
    held = [value for value in frame.f_locals.values() if isinstance(value, DataLoader)] if frame is not None else []
    return bool(held) and all(map(is_prepared, held))


def check_device_map(model: nn.Module, world: World) -> None:
    """
    A model whose layers lie on several devices, or on none, as Hugging Face loads it.

    Raises:
        MixedUseError: it cannot be trained as it is.
    """
    if spread(model) and not world.alone:
        raise MixedUseError(
            f"the layers of the {type(model).__name__} lie on several devices (device_map), and there are "
            f"{world.size} processes: each needs a model of its own. Load it without device_map, or start "
            "one process."
        )
    few_bits = getattr(model, "is_loaded_in_8bit", False) or getattr(model, "is_loaded_in_4bit", False)
    places = {str(place) for one in device_maps(model) for place in one.values()} if few_bits else set()
    if places & {"cpu", "disk"}:
        raise MixedUseError(
            f"the {type(model).__name__} has weights in few bits on {' and '.join(sorted(places))}: such a model "
            "cannot be trained with CPU or disk offload. Load all of it on one accelerator."
        )
