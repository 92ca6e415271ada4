"""A tracker that needs nothing: one line of JSON for every call of `log`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from ..config.project import PathLike
from .base import GeneralTracker, on_main_process
from .values import plain


class JSONLinesTracker(GeneralTracker):
    """
    Writes `{logging_dir}/{run_name}/metrics.jsonl`, and the settings of the run beside it in `config.json`.

    Every line has the `step`, the `time` in seconds since 1970, and the values. A run that is started again goes on in
    the same file.

    Args:
        run_name: the name of the project.
        logging_dir: the folder for logs.
    """

    name = "jsonl"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: PathLike) -> None:
        super().__init__()
        self.folder = Path(logging_dir) / run_name
        self._file: TextIO | None = None

    @property
    def tracker(self) -> Path:
        """The file with the lines."""
        return self.folder / "metrics.jsonl"

    @on_main_process
    def start(self) -> None:
        """Open the file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = self.tracker.open("a", encoding="utf-8")

    @on_main_process
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Write the settings."""
        text = json.dumps(plain(values), indent=2, default=str)
        (self.folder / "config.json").write_text(text + "\n", encoding="utf-8")

    @on_main_process
    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Write one line; it is in the file when the call returns."""
        if self._file is None:
            self.start()
        line = {"step": step, "time": round(time.time(), 3), **plain(values), **kwargs}
        assert self._file is not None
        self._file.write(json.dumps(line, default=str) + "\n")
        self._file.flush()

    @on_main_process
    def finish(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
