"""Where a project keeps its files, and how its checkpoints are named."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import MixedUseError

PathLike: TypeAlias = "str | os.PathLike[str]"


@dataclass
class ProjectConfiguration:
    """
    The folders of a project. `iteration` counts on while checkpoints are saved, so this one is not frozen.

    Raises:
        MixedUseError: `total_limit` is below 1, or `iteration` below 0.
    """

    project_dir: PathLike | None = None
    """The folder for checkpoints, and for logs when there is no `logging_dir`."""
    logging_dir: PathLike | None = None
    """The folder for what trackers write; `project_dir` when None."""
    automatic_checkpoint_naming: bool = False
    """`save_state` without a folder writes to `{project_dir}/checkpoints/checkpoint_{iteration}`."""
    total_limit: int | None = None
    """How many of these are kept; the oldest go, after the new one is complete."""
    iteration: int = 0
    """The number of the next one."""
    save_on_each_node: bool = False
    """The first process of every machine writes, instead of the first process of the job."""

    def __post_init__(self) -> None:
        if self.total_limit is not None and self.total_limit < 1:
            raise MixedUseError(f"total_limit is {self.total_limit}; it must be 1 or more, or None to keep all.")
        if self.iteration < 0:
            raise MixedUseError(f"iteration is {self.iteration}; it must be 0 or more.")
        self.set_directories(self.project_dir)

    def set_directories(self, project_dir: PathLike | None = None) -> None:
        """Set `project_dir`, and `logging_dir` where there is none."""
        self.project_dir = project_dir
        if self.logging_dir is None:
            self.logging_dir = project_dir


def project(project_dir: PathLike | None, configuration: ProjectConfiguration | None) -> ProjectConfiguration:
    """The configuration itself when there is one; `project_dir` fills it in where it names no folder."""
    configuration = configuration or ProjectConfiguration(project_dir=project_dir)
    if project_dir is not None and configuration.project_dir is None:
        configuration.set_directories(project_dir)
    return configuration
