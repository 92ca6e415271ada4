"""Profiling: settings of torch's profiler, and a trace of every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..config.handlers import KwargsHandler
from ..config.project import PathLike
from ..errors import UnknownWordError
from ..process.group import wait_for_everyone


@dataclass
class ProfileKwargs(KwargsHandler):
    """Settings of `torch.profiler.profile`."""

    activities: list[str] | None = None
    """What is recorded: "cpu", "cuda", "xpu", ...; all that there is when None."""
    schedule_option: dict[str, int] | None = None
    """Which steps: wait, warmup, active, repeat, skip_first, as for `torch.profiler.schedule`."""
    on_trace_ready: Callable[[Any], Any] | None = None
    """Called with the profiler when a cycle of the schedule is complete."""
    record_shapes: bool = False
    """Shapes of what operators are given."""
    profile_memory: bool = False
    """Memory that is taken and given back."""
    with_stack: bool = False
    """The line of the script that called an operator."""
    with_flops: bool = False
    """Estimates of floating-point operations."""
    with_modules: bool = False
    """The module that an operator ran in."""
    output_trace_dir: PathLike | None = None
    """Where each process writes `profile_{rank}.json`, for chrome://tracing or Perfetto; None: nowhere."""

    def build(self) -> torch.profiler.profile:
        """
        A profiler with these settings.

        Raises:
            UnknownWordError: an activity that torch does not know.
        """
        schedule = None if self.schedule_option is None else torch.profiler.schedule(**self.schedule_option)
        return torch.profiler.profile(
            activities=None if self.activities is None else [_activity(one) for one in self.activities],
            schedule=schedule,
            on_trace_ready=self.on_trace_ready,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
            with_modules=self.with_modules,
        )


def _activity(word: Any) -> Any:
    known = torch.profiler.ProfilerActivity.__members__
    if isinstance(word, torch.profiler.ProfilerActivity):
        return word
    if str(word).upper() not in known:
        raise UnknownWordError("ProfileKwargs(activities=...)", word, [name.lower() for name in known])
    return known[str(word).upper()]


@contextmanager
def profile(settings: ProfileKwargs, rank: int) -> Iterator[torch.profiler.profile]:
    """Record the body, and write a trace where the settings ask for one; all processes wait for it."""
    with settings.build() as profiler:
        yield profiler
    if settings.output_trace_dir is not None:
        folder = Path(settings.output_trace_dir)
        folder.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(folder / f"profile_{rank}.json"))
        wait_for_everyone()
