"""TensorBoard."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ..available import is_available
from ..config.project import PathLike
from .base import GeneralTracker, on_main_process
from .values import is_figure, plain


class TensorBoardTracker(GeneralTracker):
    """
    Writes event files to `{logging_dir}/{run_name}`.

    Args:
        run_name: the name of the project.
        logging_dir: the folder for logs.
        kwargs: for `SummaryWriter`.
    """

    name = "tensorboard"
    package = "tensorboard"
    extra = "tensorboard"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: PathLike, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.logging_dir = str(Path(logging_dir) / run_name)
        self.init_kwargs = kwargs
        self.writer: Any = None

    @classmethod
    def check_package(cls) -> None:
        """Either of the two packages will do."""
        if not is_available("tensorboardX"):
            super().check_package()

    @on_main_process
    def start(self) -> None:
        """Open the writer."""
        try:
            module = import_module("torch.utils.tensorboard")
        except ModuleNotFoundError:
            module = import_module("tensorboardX")
        self.writer = module.SummaryWriter(self.logging_dir, **self.init_kwargs)

    @property
    def tracker(self) -> Any:
        """The `SummaryWriter`."""
        return self.writer

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keep the settings as hyper-parameters, and in a file `hparams.yml` beside the events."""
        import yaml

        known = json.loads(json.dumps(plain(values), default=str))
        flat = {name: value for name, value in known.items() if isinstance(value, (bool, int, float, str))}
        self.writer.add_hparams(flat, metric_dict={})
        self.writer.flush()
        folder = Path(self.logging_dir) / str(time.time())
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hparams.yml").write_text(yaml.safe_dump(known))

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Numbers as scalars, words as texts, dicts of numbers as one plot."""
        for name, value in plain(values).items():
            if is_figure(value):
                self.writer.add_scalar(name, value, global_step=step, **kwargs)
            elif isinstance(value, str):
                self.writer.add_text(name, value, global_step=step, **kwargs)
            elif isinstance(value, Mapping):
                self.writer.add_scalars(name, value, global_step=step, **kwargs)
        self.writer.flush()

    @on_main_process
    def log_images(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Batches of images, by name."""
        for name, value in values.items():
            self.writer.add_images(name, value, global_step=step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        """Close the writer."""
        self.writer.close()
