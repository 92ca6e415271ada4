"""Imports that all runs share: what is loaded before the fork is loaded once."""

from __future__ import annotations

import gc
import importlib
import os
import warnings
from collections.abc import Iterable
from contextlib import suppress

_ALWAYS = ("numpy", "torch.utils.data")
_SHARED = ("PIL", "matplotlib", "scipy", "sklearn", "torchvision", "tqdm")
"""Libraries that start no thread, draw no random number and keep no function of torch that we replace."""


def warm(names: Iterable[str]) -> None:
    """Import those of the named modules that are known to bear a fork; a name that is no module is left out."""
    os.environ["MPLBACKEND"] = "Agg"
    wanted = {name for name in names if name.partition(".")[0] in _SHARED}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in (*_ALWAYS, *sorted(wanted)):
            with suppress(Exception):  # the script will meet it, and say so, if it is an error at all
                importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a fork that collects garbage would go through all of it, and copy its memory
