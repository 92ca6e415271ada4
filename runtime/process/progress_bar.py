"""Progress bars."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..available import need
from ..config.environment import read_environment
from .topology import topology


def tqdm(*args: Any, main_process_only: bool = True, **kwargs: Any) -> Any:
    """
    `tqdm.auto.tqdm`, shown once per machine.

    Args:
        args: what to iterate, and further arguments of tqdm.
        main_process_only: False shows a bar on every process.
        kwargs: of tqdm.

    Raises:
        MissingPackageError: tqdm is not installed.
        ValueError: the first argument is a bool, as an older interface had it.
    """
    if args and isinstance(args[0], bool):
        raise ValueError(
            "the first argument of tqdm is what it iterates over; for a bar on every process, write "
            "main_process_only=False."
        )
    need("tqdm", "a progress bar", "progress")
    hidden = main_process_only and not topology(read_environment()).is_local_main
    kwargs["disable"] = kwargs.get("disable", False) or hidden
    return import_module("tqdm.auto").tqdm(*args, **kwargs)
