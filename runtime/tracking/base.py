"""What a tracker is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ClassVar

from ..available import need
from ..errors import IncompleteTrackerError
from ..process.state import PartialState


def on_main_process(function: Callable[..., Any]) -> Callable[..., Any]:
    """
    Decorator for methods of trackers: on the main process only, if the tracker's `main_process_only` says so.

    Elsewhere the call returns None. The process is asked when the method is called, not before.
    """

    @wraps(function)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "main_process_only", False) and not PartialState().is_main_process:
            return None
        return function(self, *args, **kwargs)

    return guarded


class GeneralTracker:
    """
    The base of all trackers. A subclass sets `name` and `requires_logging_directory`, and has a property `tracker`.

    `__init__` only keeps its arguments; `start` imports packages and opens what is to be opened. All methods but
    `__init__` are called on the main process only, unless `main_process_only` is False.

    Raises:
        NotImplementedError: a subclass lacks one of the three.
    """

    main_process_only: bool = True
    """False: the tracker runs on every process."""
    package: ClassVar[str | None] = None
    """What it imports; None when it needs nothing."""
    extra: ClassVar[str | None] = None
    """The extra of torchlift that brings the package."""

    def __init__(self, _blank: bool = False) -> None:
        if _blank:
            return
        missing = [name for name in ("name", "requires_logging_directory", "tracker") if name not in dir(self)]
        if missing:
            listed = ", ".join(f"`{name}`" for name in missing)
            raise IncompleteTrackerError(f"the tracker {type(self).__name__} lacks {listed}. Define it in the class.")

    @classmethod
    def check_package(cls) -> None:
        """
        Make sure that what the tracker imports is installed.

        Raises:
            MissingPackageError: it is not; the message names the extra to install.
        """
        if cls.package is not None:
            need(cls.package, f"the tracker {cls.name!r}", cls.extra or cls.package)  # type: ignore[attr-defined]

    def start(self) -> None:
        """Open the run."""

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Keep the settings of the run: names, and plain values."""

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep figures or texts, for a step of the run."""

    def finish(self) -> None:
        """Close the run."""


class BlankTracker(GeneralTracker):
    """What there is instead of a tracker (on other processes than the main one): whatever is called does nothing."""

    def __init__(self) -> None:
        super().__init__(_blank=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Nothing."""
