"""Loggers for several processes: one line a job, unless asked otherwise."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from .config.environment import foreign, read_environment
from .process.group import wait_for_everyone
from .process.topology import topology

_SAID: set[tuple[str, Any]] = set()


class MultiProcessAdapter(logging.LoggerAdapter[logging.Logger]):
    """
    A logger that speaks on the main process only, and says which process spoke.

    Every method takes `main_process_only=False` (all processes speak) and `in_order=True` (all speak, one after the
    other; they wait for each other, so all must come here).
    """

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The message with the number of the process in front; the caller is named as the place it comes from."""
        msg, kwargs = super().process(msg, kwargs)
        kwargs.setdefault("stacklevel", 2)
        return f"[RANK {topology(read_environment()).rank}] {msg}", kwargs

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """Log, on those processes that are to speak."""
        main_process_only = kwargs.pop("main_process_only", True)
        in_order = kwargs.pop("in_order", False)
        if not self.isEnabledFor(level):
            return
        place = topology(read_environment())
        msg, more = self.process(msg, kwargs)
        if not in_order:
            if place.is_main or not main_process_only:
                self.logger.log(level, msg, *args, **more)
            return
        for rank in range(place.world_size):
            if rank == place.rank:
                self.logger.log(level, msg, *args, **more)
            wait_for_everyone()

    def warning_once(self, msg: object, *args: Any, **kwargs: Any) -> None:
        """Warn, but only the first time that these words and arguments come along."""
        key = (self.logger.name, (str(msg), tuple(map(str, args))))
        if key not in _SAID:
            _SAID.add(key)
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 2
            self.log(logging.WARNING, msg, *args, **kwargs)


def get_logger(name: str, log_level: str | None = None) -> MultiProcessAdapter:
    """
    A logger for several processes.

    Args:
        name: usually `__name__`.
        log_level: a level by name, for this logger and for the root; None: what TORCHLIFT_LOG_LEVEL (or
            ACCELERATE_LOG_LEVEL) says, else it stays as it is.
    """
    found = foreign("TORCHLIFT_LOG_LEVEL", "ACCELERATE_LOG_LEVEL")
    level = log_level or next(iter(found.values()), None)
    logger = logging.getLogger(name)
    if level is not None:
        logger.setLevel(level.upper())
        logger.root.setLevel(level.upper())
    return MultiProcessAdapter(logger, {})
