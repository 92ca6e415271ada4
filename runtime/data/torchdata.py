"""
torchdata's `StatefulDataLoader`, where it is installed; it is imported only when a loader with a state is asked for.

Prepared loaders keep their place in our own way (see `stateful.py`), with torchdata or without: on several processes it
would go on in another order. They are still recognised as torchdata's by scripts that ask `isinstance`. Only a loader
of torchdata's on one process stays as it is: its state is right there, and any script can load it.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

from torch.utils.data import DataLoader

from ..available import is_available
from .stateful import Stateful

_MODULE = "torchdata.stateful_dataloader"


@cache
def stateful_class() -> Any:
    """torchdata's class; None where it is not installed, or older than 0.8."""
    if not is_available("torchdata"):
        return None
    try:
        return import_module(_MODULE).StatefulDataLoader
    except ImportError:
        return None


def is_of_torchdata(loader: object) -> bool:
    """An object of torchdata's class, or of one made from it. Imports nothing."""
    module = sys.modules.get(_MODULE)
    return module is not None and isinstance(loader, module.StatefulDataLoader)


def with_state() -> type:
    """
    What to put after a class of loaders, so that it has our state, and `isinstance` finds torchdata's class if any.
    """
    theirs = stateful_class()
    return Stateful if theirs is None else _as_torch(theirs)


@cache
def _as_torch(theirs: type) -> type:
    """torchdata's class, with our state, and with all else that differs from torch's done in torch's way again."""
    # what its __init__ sets; the objects here were made by torch's
    body: dict[str, Any] = {"snapshot_every_n_steps": 1, "next_iter_state": None, "_initial_iter_for_state_dict": False}
    body |= {name: getattr(DataLoader, name) for name in ("__init__", "__iter__", "_get_iterator")}
    return type("StatefulDataLoader", (Stateful, theirs), {"__module__": __name__, **body})
