"""Trackers with an interface of their own: Comet, Aim, MLflow."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from ..config.environment import foreign
from ..config.project import PathLike
from .base import GeneralTracker, on_main_process
from .values import is_figure, plain

log = logging.getLogger(__name__)


class CometMLTracker(GeneralTracker):
    """
    Comet. The key is read from Comet's own configuration.

    Args:
        run_name: the name of the project.
        kwargs: for `comet_ml.start`.
    """

    name = "comet_ml"
    package = "comet_ml"
    extra = "comet"
    requires_logging_directory = False

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.init_kwargs = kwargs
        self.writer: Any = None

    @on_main_process
    def start(self) -> None:
        """Open the experiment."""
        import comet_ml  # type: ignore[import-not-found,unused-ignore]

        self.writer = comet_ml.start(project_name=self.run_name, **self.init_kwargs)

    @property
    def tracker(self) -> Any:
        """The experiment."""
        return self.writer

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keep the settings as parameters."""
        self.writer.log_parameters(dict(values))

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Numbers as metrics, words as other values, dicts as several metrics."""
        if step is not None:
            self.writer.set_step(step)
        for name, value in plain(values).items():
            if is_figure(value):
                self.writer.log_metric(name, value, step=step, **kwargs)
            elif isinstance(value, str):
                self.writer.log_other(name, value, **kwargs)
            elif isinstance(value, Mapping):
                self.writer.log_metrics(value, step=step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        """Close the experiment."""
        self.writer.end()


class AimTracker(GeneralTracker):
    """
    Aim.

    Args:
        run_name: the name of the run.
        logging_dir: the repository of Aim.
        kwargs: for `aim.Run`.
    """

    name = package = extra = "aim"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: PathLike = ".", **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.aim_repo_path = logging_dir
        self.init_kwargs = kwargs
        self.writer: Any = None

    @on_main_process
    def start(self) -> None:
        """Open the run."""
        from aim import Run  # type: ignore[import-not-found,unused-ignore]

        self.writer = Run(repo=self.init_kwargs.pop("repo", self.aim_repo_path), **self.init_kwargs)
        self.writer.name = self.run_name

    @property
    def tracker(self) -> Any:
        """The run."""
        return self.writer

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keep the settings as `hparams`."""
        self.writer["hparams"] = dict(values)

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Track every value."""
        for name, value in plain(values).items():
            self.writer.track(value, name=name, step=step, **kwargs)

    @on_main_process
    def log_images(
        self, values: Mapping[str, Any], step: int | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Images, or pairs of an image and its caption, by name; `kwargs` may hold "aim_image" and "track"."""
        import aim

        more = kwargs or {}
        for name, value in values.items():
            image, caption = value if isinstance(value, tuple) else (value, "")
            made = aim.Image(image, caption=caption, **more.get("aim_image", {}))
            self.writer.track(made, name=name, step=step, **more.get("track", {}))

    @on_main_process
    def finish(self) -> None:
        """Close the run."""
        self.writer.close()


class MLflowTracker(GeneralTracker):
    """
    MLflow. Its own environment variables (MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID, MLFLOW_TAGS, MLFLOW_NESTED_RUN) win
    over the arguments.

    Args:
        experiment_name: is made if there is none of this name.
        logging_dir: where artifacts go.
        run_id: of a run that is continued.
        tags: of the run: a dict, or one as JSON.
        nested_run: inside the run that is active.
        run_name: of a new run.
        description: of a new run.
    """

    name = package = extra = "mlflow"
    requires_logging_directory = False

    def __init__(
        self,
        experiment_name: str | None = None,
        logging_dir: PathLike | None = None,
        run_id: str | None = None,
        tags: dict[str, Any] | str | None = None,
        nested_run: bool = False,
        run_name: str | None = None,
        description: str | None = None,
    ) -> None:
        super().__init__()
        found: dict[str, Any] = foreign("MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID", "MLFLOW_TAGS", "MLFLOW_NESTED_RUN")
        tags = found.get("MLFLOW_TAGS", tags)
        self.experiment_name = found.get("MLFLOW_EXPERIMENT_NAME", experiment_name)
        self.logging_dir = logging_dir
        self.run_id = found.get("MLFLOW_RUN_ID", run_id)
        self.tags = json.loads(tags) if isinstance(tags, str) else tags
        self.nested_run = str(found.get("MLFLOW_NESTED_RUN", nested_run)).lower() in ("1", "true", "yes", "on")
        self.run_name = run_name
        self.description = description
        self.active_run: Any = None

    @on_main_process
    def start(self) -> None:
        """Open the run, in the experiment of that name."""
        import mlflow  # type: ignore[import-not-found,unused-ignore]

        known = mlflow.search_experiments(filter_string=f"name = '{self.experiment_name}'")
        if known:
            experiment = known[0].experiment_id
        else:
            place = None if self.logging_dir is None else str(self.logging_dir)
            experiment = mlflow.create_experiment(name=self.experiment_name, artifact_location=place, tags=self.tags)
        self.active_run = mlflow.start_run(
            run_id=self.run_id,
            experiment_id=experiment,
            run_name=self.run_name,
            nested=self.nested_run,
            tags=self.tags,
            description=self.description,
        )

    @property
    def tracker(self) -> Any:
        """The active run."""
        return self.active_run

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keep the settings as parameters; those that are too long for MLflow are left out with a warning."""
        import mlflow

        limits = mlflow.utils.validation
        kept = {name: value for name, value in values.items() if len(str(value)) <= limits.MAX_PARAM_VAL_LENGTH}
        if len(kept) < len(values):
            log.warning(
                "MLflow does not accept parameters this long; they are not logged: %s", sorted({*values} - {*kept})
            )
        items = list(kept.items())
        for start in range(0, len(items), limits.MAX_PARAMS_TAGS_PER_BATCH):
            mlflow.log_params(dict(items[start : start + limits.MAX_PARAMS_TAGS_PER_BATCH]))

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Numbers as metrics; MLflow takes nothing else, the rest is left out with a warning."""
        import mlflow

        known = plain(values)
        metrics = {name: value for name, value in known.items() if is_figure(value)}
        if len(metrics) < len(known):
            log.warning("MLflow accepts only numbers; these are not logged: %s", sorted({*known} - {*metrics}))
        mlflow.log_metrics(metrics, step=step, **kwargs)

    @on_main_process
    def log_figure(self, figure: Any, artifact_file: str, **save_kwargs: Any) -> None:
        """A figure, as a file of the run."""
        import mlflow

        mlflow.log_figure(figure=figure, artifact_file=artifact_file, **save_kwargs)

    @on_main_process
    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """The files of a folder."""
        import mlflow

        mlflow.log_artifacts(local_dir=local_dir, artifact_path=artifact_path)

    @on_main_process
    def log_artifact(self, local_path: str, artifact_path: str | None = None) -> None:
        """One file."""
        import mlflow

        mlflow.log_artifact(local_path=local_path, artifact_path=artifact_path)

    @on_main_process
    def finish(self) -> None:
        """End the run."""
        import mlflow

        mlflow.end_run()
