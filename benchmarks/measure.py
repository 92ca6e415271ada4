"""Measure whole processes in turn, and tell the result: what, how long, beside what, within which budget."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torchlift.runtime.process.system import get_free_port

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
COMMANDS = Path(sys.executable).parent
_SECONDS = 3600
"""What processes that measure something may take."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    measured: str
    budget: str = ""
    within: bool | None = None
    """Whether the budget is kept; None for what is only shown beside."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """The figures themselves, by who was measured."""


@dataclass(frozen=True)
class Sample:
    """One run of a process, its children included, in seconds; and the most memory that it held, in bytes."""

    cpu: float
    wall: float
    peak: int


def run(command: Sequence[str], folder: Path) -> Sample:
    """Run a command to its end; any exit status is right."""
    start = time.perf_counter()
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=folder, env=_environment(), stdout=quiet, stderr=quiet) as process:
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0  # it has been waited for
    unit = 1 if sys.platform == "darwin" else 1024
    return Sample(used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss * unit)


def _environment() -> dict[str, str]:
    """That of a user: what is installed is compiled once, not in every run."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / f"torchlift-benchmark-{os.getuid()}")}


def in_turn(commands: Mapping[str, Sequence[str]], folder: Path, rounds: int) -> dict[str, Sample]:
    """Run the commands in turn, several rounds after one to warm up: the medians, and the highest peak."""
    samples: dict[str, list[Sample]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            sample = run(command, folder)
            if number:
                samples[name].append(sample)
    return {
        name: Sample(
            statistics.median(s.cpu for s in taken),
            statistics.median(s.wall for s in taken),
            max(s.peak for s in taken),
        )
        for name, taken in samples.items()
    }


def processes(call: str, count: int, cpu: bool = True) -> Any:
    """
    What the first of some processes that know one another prints as JSON. Each computes with one thread.

    Args:
        call: what they run, as `module.function(...)` of this package.
        count: how many.
        cpu: on the CPU, also where there is something better.

    Raises:
        RuntimeError: one of them failed; with what they wrote.
    """
    own = {"OMP_NUM_THREADS": "1", **({"TORCHLIFT_CPU": "1", "ACCELERATE_USE_CPU": "1"} if cpu else {})}
    if count > 1:
        own |= {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(get_free_port())}
        own |= {"TORCHELASTIC_RUN_ID": "benchmark", "GROUP_RANK": "0", "LOCAL_WORLD_SIZE": str(count)}  # for Fabric
    module = call.partition(".")[0]
    with tempfile.TemporaryFile("w+") as errors:
        started = [
            subprocess.Popen(
                [sys.executable, "-c", f"from benchmarks import {module}; {call}"],
                env={**os.environ, **own, **({"RANK": str(rank), "LOCAL_RANK": str(rank)} if count > 1 else {})},
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            for rank in range(count)
        ]
        outputs = [one.communicate(timeout=_SECONDS)[0] for one in started]
        found = [line for line in outputs[0].splitlines() if line.startswith("{")]
        if any(one.returncode for one in started) or not found:
            errors.seek(0)
            raise RuntimeError(f"{call} failed on {count} processes:\n{errors.read()}")
    return json.loads(found[0])


def fastest_tenth(times: Sequence[float]) -> float:
    """The tenth percentile: what else a machine does makes a measurement longer, never shorter."""
    return sorted(times)[len(times) // 10]


def calls_in_turn(
    calls: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.thread_time
) -> dict[str, float]:
    """Seconds of a call, by default of this thread's CPU time; all are made in turn, three rounds warm up."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 3):
        for name, call in calls.items():
            start = clock()
            call()
            if number >= 3:
                taken[name].append(clock() - start)
    return {name: fastest_tenth(times) for name, times in taken.items()}


def beside(what: str, seconds: Mapping[str, float], other: str = "", part: float = 1.0, unit: float = 1e-3) -> Row:
    """
    A row that sets the runtime beside others.

    Args:
        what: was measured.
        seconds: by name; ours is "torchlift".
        other: whose time the budget is a part of; empty without a budget.
        part: of that time.
        unit: in seconds, of what is shown.
    """
    mine = seconds["torchlift"]
    word = {1e-3: "ms", 1e-6: "us"}[unit]
    shown = [f"{mine / unit:.2f} {word}"]
    shown += [f"{n}: {s / unit:.2f} {word} ({s / mine:.2f} x)" for n, s in seconds.items() if n != "torchlift"]
    within = mine <= seconds[other] * part if other in seconds else None
    limit = f"{part:.3g} x {other}" if part >= 1 else f"{other} / {1 / part:.3g}"
    return Row(what, "; ".join(shown), f"<= {limit}" if other else "", within, dict(seconds))


def missing(*packages: str) -> list[Row]:
    """A row that names the peers that are not installed, if any."""
    absent = [name for name in packages if find_spec(name) is None]
    return [Row(f"not installed here, so not measured: {', '.join(absent)}", "")] if absent else []


def milliseconds(seconds: float) -> str:
    """As text, e.g. `52 ms`."""
    return f"{seconds * 1000:.0f} ms"


def within(what: str, measured: float, budget: float, beside: str = "") -> Row:
    """A row with a budget in seconds."""
    shown = milliseconds(measured) + (f" {beside}" if beside else "")
    return Row(what, shown, f"<= {milliseconds(budget)}", measured <= budget)


def show(title: str, rows: Sequence[Row]) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", header_style="bold")
    for name in ("", "measured", "budget", ""):
        table.add_column(name)
    words = {True: "[green]within[/]", False: "[red]over[/]", None: ""}
    for row in rows:
        table.add_row(row.what, row.measured, row.budget, words[row.within])
    Console(width=120).print(table)


def keep(name: str, title: str, rows: Sequence[Row]) -> None:
    """Write the table to the folder of results, with the date and the machine; and the figures, for `report`."""
    RESULTS.mkdir(exist_ok=True)
    words = {True: "within", False: "over", None: ""}
    where = f"{datetime.datetime.now(tz=datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, {machine()}"
    lines = [
        f"# {title}",
        "",
        where,
        "",
        "| what | measured | budget | |",
        "|---|---|---|---|",
        *(f"| {row.what} | {row.measured} | {row.budget} | {words[row.within]} |" for row in rows),
        "",
    ]
    (RESULTS / f"{name}.md").write_text("\n".join(lines))
    found = {"title": title, "where": where, "rows": [asdict(row) for row in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


def machine() -> str:
    """The machine in words."""
    import torch

    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        named = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = named[0].partition(": ")[2] if named else model
    load = f", load {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{model}, {os.cpu_count()} cores{gpu}, {platform.system()}, Python {platform.python_version()}{load}"
