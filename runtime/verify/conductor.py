"""Verify: run the original and the migrated script, all forked from this process, and compare."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..device.kinds import current
from ..process.system import get_free_port
from . import by_hand
from .child import Task
from .collect import OriginalNames, collect
from .compare.causes import explained
from .compare.devices import devices, mixes
from .compare.everything import SHOWN, compare, nothing, unstable
from .compare.samples import first_completed
from .compare.tolerances import About, Unstable
from .curve import curve, draw
from .hooks.ports import COUNT
from .notes import notes
from .orphans import adopt_orphans, end_orphans
from .program import imported_names, line_of, lines_of, own_files, root_of
from .progress import RunProgress
from .request import Script, VerifyRequest
from .run_processes import Limits, Run, watch
from .scratch import PREFIX, FileState, Scratch, mirror, snapshot
from .traces import RunTrace, found_port_in_use
from .verdict import BROKEN, HELD, ORIGINAL_FAILS, Failure, Outcome, Promise, RunSeen, Verdict
from .warm import warm

_DISTRIBUTED = (b"init_process_group", b"LOCAL_RANK", b"WORLD_SIZE")
_DROPPED = (
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT DISPLAY WAYLAND_DISPLAY "
    "TORCHELASTIC_RUN_ID PYTHONSAFEPATH PJRT_DEVICE CPU_NUM_DEVICES"
).split()
_SETTINGS = {
    "MPLBACKEND": "Agg",
    "QT_QPA_PLATFORM": "offscreen",
    "WANDB_MODE": "offline",
    "PYTHONUNBUFFERED": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
"""No window, no upload, no half written line, a status of git that writes nothing, and the same bits each time."""
_PREFIXES = ("TORCHLIFT_", "ACCELERATE_")
_PRETENDED = ", on a pretended accelerator"
"""Ends the names of runs that only show whether devices are mixed."""
_AHEAD = " with clocks ahead"
"""Ends the names of runs that only show what is made of a clock."""
_REHEARSED = 4
"""Steps of such a run: every line of the script is reached, and nothing else is asked of it."""
_PAUSES = (2.0, 6.0, 18.0)
"""Seconds before a run is tried again that has found a port in use."""
_OURS = b"torchlift"
_KEPT_BY = (_OURS, b"accelerate")
"""Runtimes that can be told to keep the global batch."""


@dataclass(frozen=True)
class _Start:
    """What a run is to be."""

    name: str
    program: Script
    processes: int
    migrated: bool
    pretend: bool = False
    ahead: bool = False


class Server:
    """
    Carries out one request.

    Args:
        request: what to verify.
        progress: told of the runs; nobody is when None.
    """

    def __init__(self, request: VerifyRequest, progress: RunProgress | None = None) -> None:
        self.request = request
        self._progress = progress
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        self._scratches: dict[str, tuple[Scratch, dict[str, FileState]]] = {}
        self._traces: dict[str, RunTrace] = {}
        self._texts = [list(own_files(program).values()) for program in (request.original, request.migrated)]
        self._spawns = request.distributed and by_hand.spawns(self._texts[0])
        self._cpu = request.cpu or bool(request.device) or _accelerators() < max(request.procs)

    def verify(self) -> Verdict:
        """Run, compare, clean up."""
        adopt_orphans()
        warm(name for texts in self._texts for text in texts for name in imported_names(text))
        try:
            return self._verify()
        finally:
            end_orphans()
            if self._progress is not None:
                self._progress.finish()
            if not self.request.keep:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _verify(self) -> Verdict:
        request = self.request
        alone = 1 in self._originals
        rehearsed = self._cpu and not request.cpu and not request.device and 1 in request.procs
        self._plan(len(self._originals) + len(request.procs) + rehearsed)
        first = [_Start("original", request.original, 1, False)] if alone else []
        if 1 in request.procs:
            first.append(_Start("migrated on 1", request.migrated, 1, True))
        self._run(*first)
        for count in self._originals:
            if count > 1:
                self._run(_Start(self._original(count), request.original, count, False))
        failure = self._failure()
        if failure is not None:
            return self._verdict(ORIGINAL_FAILS, (), failure)
        for count in request.procs:
            if count > 1 and not self._obstacle(count):
                self._run(_Start(f"migrated on {count}", request.migrated, count, True))
        promises = self._compare({})
        shaky = {self._count(promise.processes) for promise in promises if promise.outcome is Outcome.BROKEN}
        if shaky:
            self._plan(len(shaky))
            repeated = {count: self._again(count) for count in sorted(shaky)}
            promises = self._compare(repeated)
            shaky = {self._count(p.processes) for p in promises if p.outcome is Outcome.BROKEN and p.id in SHOWN}
        if shaky:
            self._plan(len(shaky))
            repeated.update({count: repeated[count].beside(self._ahead(count)) for count in sorted(shaky)})
            promises = self._compare(repeated)
        whole = 1 in request.procs and self._traces["migrated on 1"].sound
        if rehearsed and whole and not self._obstacle(1):
            promises += explained([self._rehearse()], self._line, self._text)
        broken = any(promise.outcome is Outcome.BROKEN for promise in promises)
        compared = not all(map(self._obstacle, self._originals))
        return self._verdict(BROKEN if broken else HELD if compared else ORIGINAL_FAILS, tuple(promises), None)

    def _plan(self, runs: int) -> None:
        """So many more runs are to come."""
        if self._progress is not None:
            self._progress.planned += runs

    @property
    def _originals(self) -> tuple[int, ...]:
        """On how many processes the original is run: on one, but where it is distributed by hand."""
        return self.request.procs if self.request.distributed else (1,)

    def _count(self, count: int) -> int:
        """On how many processes the original runs that a migrated run is compared with."""
        return count if self.request.distributed else 1

    def _original(self, count: int) -> str:
        """The name of that run."""
        return f"original on {count}" if self._count(count) > 1 else "original"

    def _obstacle(self, count: int) -> str:
        """Why that run is nothing to compare with; empty when it is."""
        return by_hand.obstacle(self._traces[self._original(count)]) if self.request.distributed else ""

    def _again(self, count: int) -> Unstable:
        """Run the original once more: what differs cannot be compared."""
        name = self._original(count)
        self._run(_Start(f"{name} again", self.request.original, count, False))
        return unstable(self._traces[name], self._traces[f"{name} again"])

    def _ahead(self, count: int) -> Unstable:
        """Run the original with clocks ahead: what differs is no result. Nothing where it trains or ends otherwise."""
        name = self._original(count)
        self._run(_Start(f"{name}{_AHEAD}", self.request.original, count, False, ahead=True))
        runs = [self._traces[one] for one in (name, f"{name}{_AHEAD}")]
        found = unstable(*runs)
        alike = len({(len(run.main.of("step")), run.sound) for run in runs}) == 1
        return found if alike and not found.weights else Unstable()

    def _failure(self) -> Failure | None:
        """The original does not run by itself, on any number of processes."""
        names = [self._original(count) for count in self._originals]
        if self.request.distributed and not all(map(self._obstacle, self._originals)):
            return None
        found = [_failure(self._traces[name], self._scratches[name][0], self.request.double) for name in names]
        return next(filter(None, found), None)

    def _rehearse(self) -> Promise:
        """Run the migrated script on a pretended accelerator; the original too, where that goes wrong."""
        name = f"migrated{_PRETENDED}"
        self._run(_Start(name, self.request.migrated, 1, True, pretend=True))
        migrated = self._traces[name]
        if not mixes(migrated):
            return devices(migrated, None)
        name = f"original{_PRETENDED}"
        self._run(_Start(name, self.request.original, 1, False, pretend=True))
        return devices(migrated, self._traces[name])

    def _compare(self, shaky: Mapping[int, Unstable]) -> list[Promise]:
        found: list[Promise] = []
        for count in self.request.procs:
            if why := self._obstacle(count):
                found += nothing(count, why)
                continue
            original, migrated = self._traces[self._original(count)], self._traces[f"migrated on {count}"]
            foreign = count > 1 and self.request.exact and not self._says(self.request.migrated, (_OURS,))
            about = About(
                original=original,
                migrated=migrated,
                kept_until=first_completed(original, migrated) if foreign else None,
                exact=self.request.exact,
                double=self.request.double,
                kept=self._count(count) == count
                or not self.request.exact
                or self._says(self.request.migrated, _KEPT_BY),
                unstable=shaky.get(self._count(count), Unstable()),
                devices=count if self.request.device else 0,
                said=self.request.by_nature,
            )
            found += explained(compare(about), self._line, self._text, found)
        return found

    def _line(self, promise: Promise) -> str:
        """What the line says that a promise points to."""
        return line_of(self.request.original if promise.side == "original" else self.request.migrated, promise.at)

    def _text(self, promise: Promise) -> tuple[str, int]:
        """The migrated text that a promise points to, and the line there."""
        lines, number = lines_of(self.request.migrated, promise.at)
        return "\n".join(lines), number

    def _says(self, program: Script, words: tuple[bytes, ...]) -> bool:
        """Whether one of the program's files holds one of the words."""
        return any(word in text for text in self._texts[program is self.request.migrated] for word in words)

    def _run(self, *starts: _Start) -> None:
        """Carry out runs that go on at the same time; again, when something else holds a port that they need."""
        self._watch(starts)
        for seconds in _PAUSES:
            starts = tuple(start for start in starts if found_port_in_use(self._traces[start.name]))
            if not starts:
                return
            time.sleep(seconds)
            for start in starts:
                shutil.rmtree(self._scratches[start.name][0].top)
            self._watch(starts)

    def _watch(self, starts: Sequence[_Start]) -> None:
        tell = self._progress.going if self._progress is not None else lambda going: None
        watch([self._begin(start) for start in starts], self._over, tell)

    def _begin(self, start: _Start) -> Run:
        request = self.request
        name, program, count = start.name, start.program, start.processes
        migrated, pretend = start.migrated, start.pretend
        place = self.folder / name.replace(" ", "-")
        scratch = mirror(program, place)
        self._scratches[name] = scratch, snapshot(scratch)
        devices = count if migrated and request.device else 0
        if devices:  # one process drives them
            count = 1
        split = migrated and count > 1 and request.exact and not request.distributed
        spawned = self._spawns and not migrated
        ports = tuple(get_free_port() for _ in range(COUNT))
        port = ports[0] if count > 1 or self._says(program, _DISTRIBUTED) else None
        environment = self._environment(count, split, port, pretend)
        if devices:
            stays = ("TORCHLIFT_CPU", "ACCELERATE_USE_CPU")
            environment = {name: value for name, value in environment.items() if name not in stays}
            environment.update(self._by_xla(devices))
        if spawned:
            environment = {k: v for k, v in environment.items() if k not in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")}
        home, module = root_of(program)
        tasks = [
            Task(
                rank=rank,
                scratch=scratch,
                home=scratch.folder / os.path.relpath(home, program.folder),
                module=module,
                arguments=request.arguments,
                environment={**environment, **_place(rank, environment)},
                trace=place / f"trace-{rank}.jsonl",
                stacks=place / f"stack-{rank}.txt",
                steps=min(request.steps, _REHEARSED) if pretend else request.steps,
                exact=request.exact and not pretend,
                double=request.double and not pretend,
                split=split,
                disk_bytes=request.disk_bytes,
                pretend=pretend,
                ahead=start.ahead,
                processes=count,
                ports=ports,
                by_hand=request.distributed and not migrated,
                spawned=spawned,
            )
            for rank in range(count)
        ]
        limits = Limits(
            seconds=request.seconds,
            wait=request.wait,
            output_bytes=request.output_bytes,
            disk_bytes=request.disk_bytes,
        )
        known = self._traces.get(self._original(count))
        if known is not None:
            limits.wait = max(limits.wait, 5 * known.longest_gap())
        return Run(name, tasks, limits)

    def _environment(self, count: int, split: bool, port: int | None, pretend: bool) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in _DROPPED and not k.startswith(_PREFIXES)}
        kept.update(_SETTINGS)
        if self._cpu and not pretend:
            kept.update(TORCHLIFT_CPU="1", ACCELERATE_USE_CPU="true", CUDA_VISIBLE_DEVICES="")
        if split:
            kept["TORCHLIFT_SPLIT_BATCHES"] = "1"
        if self.request.sharded and count > 1:
            kept["ACCELERATE_USE_FSDP"] = "true"
        if port is not None:
            kept.update(WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count))
            kept.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        return kept

    def _by_xla(self, devices: int) -> dict[str, str]:
        """Variables for one process with virtual devices."""
        sharded = {"ACCELERATE_USE_FSDP": "true"} if self.request.sharded and devices > 1 else {}
        return {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(devices), "TF_CPP_MIN_LOG_LEVEL": "2", **sharded}

    def _over(self, run: Run) -> None:
        if self._progress is not None:
            self._progress.over(run)
        scratch, before = self._scratches[run.name]
        self._traces[run.name] = collect(run, scratch, before, OriginalNames(scratch, self.request.original))

    def _verdict(self, status: int, promises: tuple[Promise, ...], failure: Failure | None) -> Verdict:
        request = self.request
        curves = {"original": curve(self._traces[self._original(max(self._originals))])}
        for count in request.procs:
            if f"migrated on {count}" in self._traces:
                curves[str(count)] = curve(self._traces[f"migrated on {count}"])
        last = str(max(request.procs))
        drawing = draw(curves["original"], curves.get(last, []), ("original", f"migrated, on {last}"))
        return Verdict(
            status=status,
            mode="double" if request.double else "exact" if request.exact else "as-is",
            device="cpu" if self._cpu else "accelerator",
            promises=promises,
            notes=tuple(notes(self._traces, request, (_PRETENDED, _AHEAD))),
            curves=curves,
            drawing=drawing if failure is None else (),
            runs=tuple(self._seen(name, trace) for name, trace in self._traces.items()),
            original_error=failure,
        )

    def _seen(self, name: str, trace: RunTrace) -> RunSeen:
        elsewhere = sorted({event["f"] for rank in trace.ranks for event in rank.of("elsewhere")})
        ended = trace.ended or ("steps" if trace.cut else "error" if trace.main.error else "end")
        return RunSeen(
            name=name,
            processes=trace.size,
            seconds=round(trace.seconds, 2),
            steps=len(trace.main.of("step")),
            ended=ended,
            status=trace.main.status,
            writes_elsewhere=tuple(elsewhere[:50]),
            scratch=str(self._scratches[name][0].folder) if self.request.keep else None,
        )


def _failure(trace: RunTrace, scratch: Scratch, double: bool) -> Failure | None:
    "The original script fails."
    rank = by_hand.failing(trace) or trace.main
    if trace.ended not in ("", "alone") or rank.status == 0:
        return None
    if rank.error is not None:
        text = rank.error["text"].replace(str(scratch.folder), str(scratch.original))
        mode = "in float64 (without --double it may run), " if double else ""
        return Failure(
            error=f"{mode}{rank.error['kind']}: {rank.error['message']}", at=rank.error["at"], traceback=text
        )
    status = rank.status or 0
    error = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return Failure(error=error, at="?", traceback=rank.errors[-8000:])


def _place(rank: int, environment: Mapping[str, str]) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank)} if "WORLD_SIZE" in environment else {}


def _accelerators() -> int:
    """How many there are, asked in a process of its own: one that has touched a GPU must not fork."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, str(current().count()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return int(text or 0)
