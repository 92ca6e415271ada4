"""Trackers whose package opens a run with `init(project=...)`: Weights & Biases, Trackio, SwanLab."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

from .base import GeneralTracker, on_main_process
from .values import plain


class RunTracker(GeneralTracker):
    """
    Opens a run of `package`.

    Args:
        run_name: the name of the project.
        kwargs: for the package's `init`.
    """

    package: ClassVar[str]
    requires_logging_directory = False

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.init_kwargs = kwargs
        self.run: Any = None

    @property
    def _module(self) -> Any:
        return import_module(self.package)

    @on_main_process
    def start(self) -> None:
        """Open the run."""
        self.run = self._module.init(project=self.run_name, **self.init_kwargs)

    @property
    def tracker(self) -> Any:
        """The run."""
        return self.run

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keep the settings with the run."""
        self._module.config.update(dict(values), allow_val_change=True)

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep figures, texts, and whatever the package knows."""
        self.run.log(plain(values), step=step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        """Close the run."""
        self.run.finish()


class WandBTracker(RunTracker):
    """Weights & Biases."""

    name = package = extra = "wandb"

    @on_main_process
    def log_images(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Lists of images, by name."""
        images = {name: [self._module.Image(image) for image in value] for name, value in values.items()}
        self.log(images, step=step, **kwargs)

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
        """A table, from columns and rows, or from a data frame."""
        table = self._module.Table(columns=columns, data=data, dataframe=dataframe)
        self.log({table_name: table}, step=step, **kwargs)


class TrackioTracker(RunTracker):
    """Trackio."""

    name = package = extra = "trackio"

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keep the settings with the run."""
        self._module.config.update(dict(values))


class SwanLabTracker(RunTracker):
    """SwanLab."""

    name = package = extra = "swanlab"

    @on_main_process
    def log_images(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Lists of images, by name."""
        images = {name: [self._module.Image(image) for image in value] for name, value in values.items()}
        self.log(images, step=step, **kwargs)
