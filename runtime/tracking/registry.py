"""Trackers by their names."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ..config.project import PathLike
from ..errors import MissingPackageError, TrackerError, UnknownWordError
from ..types import LoggerType
from .base import GeneralTracker
from .experiments import AimTracker, CometMLTracker, MLflowTracker
from .json_lines import JSONLinesTracker
from .runs import SwanLabTracker, TrackioTracker, WandBTracker
from .tasks import ClearMLTracker, DVCLiveTracker
from .tensorboard import TensorBoardTracker

LOGGER_TYPE_TO_CLASS: dict[str, type[Any]] = {
    tracker.name: tracker
    for tracker in (
        AimTracker,
        ClearMLTracker,
        CometMLTracker,
        DVCLiveTracker,
        JSONLinesTracker,
        MLflowTracker,
        SwanLabTracker,
        TensorBoardTracker,
        TrackioTracker,
        WandBTracker,
    )
}
"""All trackers that can be asked for by name."""


def register_tracker_class(tracker_class: type[GeneralTracker]) -> None:
    """
    Let a tracker be asked for by its name. It is made as `tracker_class(project_name, **kwargs)`, with the folder for
    logs as second argument when it requires one.

    Raises:
        TrackerError: it is no subclass of `GeneralTracker`, or lacks a name or `requires_logging_directory`.
    """
    if not (isinstance(tracker_class, type) and issubclass(tracker_class, GeneralTracker)):
        raise TrackerError(f"{tracker_class!r} is not a subclass of GeneralTracker.")
    name = getattr(tracker_class, "name", None)
    if not isinstance(name, str) or not isinstance(getattr(tracker_class, "requires_logging_directory", None), bool):
        raise TrackerError(
            f"{tracker_class.__name__} needs two class attributes: `name`, a string, and "
            "`requires_logging_directory`, True or False."
        )
    if name in LOGGER_TYPE_TO_CLASS:
        warnings.warn(f"the tracker named {name!r} is replaced by {tracker_class.__name__}", stacklevel=2)
    LOGGER_TYPE_TO_CLASS[name] = tracker_class


def get_available_trackers() -> list[str]:
    """The names of the trackers whose packages are installed."""
    return [name for name, tracker in LOGGER_TYPE_TO_CLASS.items() if _installed(tracker)]


def _installed(tracker: type[GeneralTracker]) -> bool:
    try:
        tracker.check_package()
    except MissingPackageError:
        return False
    return True


def filter_trackers(
    log_with: str | GeneralTracker | Sequence[str | GeneralTracker] | None, logging_dir: PathLike | None = None
) -> list[str | GeneralTracker]:
    """
    What `log_with` amounts to: names and trackers, each once.

    Args:
        log_with: a name, a tracker, or a list of them. "all" stands for every tracker that is installed and has a
            folder for logs where it needs one.
        logging_dir: the folder for logs.

    Raises:
        UnknownWordError: no such tracker.
        MissingPackageError: its package is not installed.
        TrackerError: it needs a folder for logs, and there is none.
    """
    asked = list(log_with) if isinstance(log_with, (list, tuple)) else [log_with]
    chosen: list[str | GeneralTracker] = []
    for one in asked:
        if one is None or one in chosen:
            continue
        if isinstance(one, GeneralTracker):
            chosen.append(one)
        elif str(one) == LoggerType.ALL:
            chosen.extend(_all(logging_dir, chosen))
        else:
            chosen.append(_checked(str(one), logging_dir))
    return chosen


def _all(logging_dir: PathLike | None, chosen: list[str | GeneralTracker]) -> list[str]:
    return [
        name
        for name in get_available_trackers()
        if name not in chosen and (logging_dir is not None or not LOGGER_TYPE_TO_CLASS[name].requires_logging_directory)
    ]


def _checked(name: str, logging_dir: PathLike | None) -> str:
    tracker = LOGGER_TYPE_TO_CLASS.get(name)
    if tracker is None:
        raise UnknownWordError("log_with", name, [LoggerType.ALL.value, *sorted(LOGGER_TYPE_TO_CLASS)])
    tracker.check_package()
    if tracker.requires_logging_directory and logging_dir is None:
        raise TrackerError(
            f"Logging with `{name}` requires a `logging_dir` to be passed in: Accelerator(project_dir=...) or "
            "ProjectConfiguration(logging_dir=...)."
        )
    return name
