"""The trackers of one accelerator."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..config.project import PathLike
from ..errors import TrackerError
from .base import BlankTracker, GeneralTracker
from .registry import LOGGER_TYPE_TO_CLASS, filter_trackers

log = logging.getLogger(__name__)


class Trackers:
    """
    Starts trackers, hands them what is logged, and finishes them.

    Args:
        log_with: names or trackers, as the accelerator was given them.
        logging_dir: the folder for logs.
        is_main: this is the main process; elsewhere only trackers that run on every process are started.
    """

    def __init__(self, log_with: Any, logging_dir: PathLike | None, is_main: bool) -> None:
        self.log_with = filter_trackers(log_with, logging_dir)
        self.running: list[GeneralTracker] = []
        self._logging_dir = logging_dir
        self._is_main = is_main
        self._started = False

    def start(
        self,
        project_name: str,
        config: Mapping[str, Any] | None = None,
        init_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Make and start all that were asked for; one that was given as an object is only started."""
        self._started = True
        for one in self.log_with:
            tracker = one if isinstance(one, GeneralTracker) else self._made(one, project_name, init_kwargs or {})
            if self._is_main or not tracker.main_process_only:
                tracker.start()
                if config is not None:
                    tracker.store_init_configuration(config)
                self.running.append(tracker)

    def _made(self, name: str, project_name: str, init_kwargs: Mapping[str, Mapping[str, Any]]) -> GeneralTracker:
        cls = LOGGER_TYPE_TO_CLASS[name]
        place = (self._logging_dir,) if cls.requires_logging_directory else ()
        tracker: GeneralTracker = cls(project_name, *place, **init_kwargs.get(name, {}))
        return tracker

    def log(
        self,
        values: Mapping[str, Any],
        step: int | None = None,
        log_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Hand values to all trackers that run here; `log_kwargs` holds further arguments by name of the tracker."""
        if self.log_with and not self._started:
            self._started = True  # said once
            log.warning("this log call is lost: call accelerator.init_trackers(project_name) first")
        for tracker in self.running:
            more = (log_kwargs or {}).get(getattr(tracker, "name", ""), {})
            tracker.log(values, step=step, **more)

    def get(self, name: str, unwrap: bool = False) -> Any:
        """
        The tracker of this name (with `unwrap`, what it wraps); on a process where it does not run, a blank one.

        Raises:
            TrackerError: there is none of this name.
        """
        for tracker in self.running:
            if getattr(tracker, "name", None) == name:
                return tracker.tracker if unwrap else tracker  # type: ignore[attr-defined]
        if self._is_main and self.running:
            names = ", ".join(str(getattr(tracker, "name", "?")) for tracker in self.running)
            raise TrackerError(f"{name} is not an available tracker stored inside the `Accelerator`: it has {names}.")
        return BlankTracker()

    def finish(self) -> None:
        """Finish all trackers."""
        for tracker in self.running:
            tracker.finish()
