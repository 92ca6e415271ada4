"""Trackers that join what the script may have opened itself: ClearML, DVCLive."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..config.environment import foreign
from ..errors import TrackerError
from .base import GeneralTracker, on_main_process
from .values import is_figure, plain

log = logging.getLogger(__name__)


class ClearMLTracker(GeneralTracker):
    """
    ClearML. A task that the script has opened is used, and left open. CLEARML_PROJECT and CLEARML_TASK win over
    `run_name`.

    Args:
        run_name: the name of the project and of the task.
        kwargs: for `Task.init`.
    """

    name = package = extra = "clearml"
    requires_logging_directory = False

    def __init__(self, run_name: str | None = None, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.init_kwargs = kwargs
        self.task: Any = None
        self._foreign = False

    @on_main_process
    def start(self) -> None:
        """Open the task, or join the one that is open."""
        from clearml import Task  # type: ignore[import-not-found,unused-ignore]

        self.task = Task.current_task()
        self._foreign = self.task is not None
        if not self._foreign:
            found = foreign("CLEARML_PROJECT", "CLEARML_TASK")
            names = {
                "project_name": found.get("CLEARML_PROJECT", self.run_name),
                "task_name": found.get("CLEARML_TASK", self.run_name),
            }
            self.task = Task.init(**{**names, **self.init_kwargs})

    @property
    def tracker(self) -> Any:
        """The task."""
        return self.task

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Connect the settings to the task."""
        self.task.connect_configuration(dict(values))

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Numbers as scalars (without a step, as single values); the rest is left out with a warning."""
        logger = self.task.get_logger()
        for name, value in plain(values).items():
            if not is_figure(value):
                log.warning("ClearML accepts only numbers; %s is not logged", name)
            elif step is None:
                logger.report_single_value(name=name, value=value, **kwargs)
            else:
                title, series = _title_and_series(name)
                logger.report_scalar(title=title, series=series, value=value, iteration=step, **kwargs)

    @on_main_process
    def log_images(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Images, by name."""
        for name, value in values.items():
            title, series = _title_and_series(name)
            self.task.get_logger().report_image(title=title, series=series, iteration=step, image=value, **kwargs)

    @on_main_process
    def log_table(
        self,
        table_name: str,
        columns: list[str] | None = None,
        data: list[list[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        """A table, from a data frame, or from rows of which the first may be the names of the columns."""
        if dataframe is None and data is None:
            raise TrackerError("log_table got neither data nor a dataframe.")
        table = dataframe if dataframe is not None else [columns, *(data or [])] if columns else data
        title, series = _title_and_series(table_name)
        self.task.get_logger().report_table(title=title, series=series, table_plot=table, iteration=step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        """Close the task, unless the script has opened it."""
        if self.task and not self._foreign:
            self.task.close()


def _title_and_series(name: str) -> tuple[str, str]:
    for series in ("eval", "test", "train"):
        if name.startswith(f"{series}_"):
            return name.removeprefix(f"{series}_"), series
    return name, "train"


class DVCLiveTracker(GeneralTracker):
    """
    DVCLive.

    Args:
        run_name: is not used.
        live: a `Live` that the script has opened.
        kwargs: for `dvclive.Live`.
    """

    name = package = extra = "dvclive"
    requires_logging_directory = False

    def __init__(self, run_name: str | None = None, live: Any = None, **kwargs: Any) -> None:
        super().__init__()
        self.live = live
        self.init_kwargs = kwargs

    @on_main_process
    def start(self) -> None:
        """Open it."""
        from dvclive import Live  # type: ignore[import-not-found,unused-ignore]

        if self.live is None:
            self.live = Live(**self.init_kwargs)

    @property
    def tracker(self) -> Any:
        """The `Live`."""
        return self.live

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keep the settings as parameters."""
        self.live.log_params(dict(values))

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Numbers and words as metrics; then the step is complete."""
        from dvclive.plots import Metric  # type: ignore[import-not-found,unused-ignore]

        if step is not None:
            self.live.step = step
        for name, value in plain(values).items():
            if Metric.could_log(value):
                self.live.log_metric(name, value, **kwargs)
            else:
                log.warning("DVCLive does not accept %s; it is not logged", name)
        self.live.next_step()

    @on_main_process
    def finish(self) -> None:
        """Close it."""
        self.live.end()
