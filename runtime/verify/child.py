"""What a forked process does: take its place, put the hooks in, run the script, and leave in order."""

from __future__ import annotations

import atexit
import builtins
import faulthandler
import importlib.util
import io
import os
import random
import resource
import signal
import sys
import threading
import traceback
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import imports
from .exact import double, layers, noise, order, pretended
from .hooks import cells, clocks, collectives, data, files, libraries, output, ports, spawning, training
from .hooks.recorder import Ended, Recorder
from .program import cell_name, numbered_cells, place_of
from .sandbox import Sandbox, use_temporary_folder
from .scratch import Scratch

_GOES_ON = 200
"""So many steps after passes have become short, the run is ended."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one process of a run has to do."""

    rank: int
    scratch: Scratch
    home: Path
    """The folder of the mirror that imports begin at."""
    module: str | None
    """The dotted name, if the script is started as a module."""
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    trace: Path
    stacks: Path
    """Where the stacks go on SIGUSR1."""
    steps: int
    exact: bool
    double: bool
    split: bool
    """Keep the global batch, also with runtimes that do not listen to our environment."""
    disk_bytes: int
    pretend: bool = False
    """Pretend that there is an accelerator."""
    processes: int = 1
    """Of the run."""
    ports: tuple[int, ...] = ()
    """Free ones, instead of those that the script names."""
    by_hand: bool = False
    """The script may start its processes by itself: what they run is run here."""
    spawned: bool = False
    """It does, and is seen to: this process stands for one that it would start."""
    ahead: bool = False
    """The clocks are ahead."""


def run(task: Task) -> int:
    """Run the script in this process and return its exit status."""
    _take_place(task)
    recorder = Recorder(
        path=str(task.trace),
        rank=task.rank,
        root=str(task.scratch.tree) + os.sep,
        base=str(task.scratch.folder),
        steps=task.steps,
        most_steps=task.steps + _GOES_ON,
    )
    out, err = output.install(recorder)
    steps, loaders = _put_hooks_in(task, recorder)
    status = _script(task, recorder)
    status = _leave(status, recorder)
    out.finish()
    err.finish()
    recorder.write(
        "end",
        code=status,
        held={kind: len(members) for kind, members in recorder.held.items()},
        lr=[training.rates_of(one) for one in steps.optimizers],
        loaders=len(loaders.datasets),
        draws=recorder.draws,
        cut=_cuts_batches(),
    )
    return status


def _cuts_batches() -> bool:
    """Whether the runtime has cut a batch that the script made by hand."""
    found = sys.modules.get("torchlift.runtime.data.hand_batches")
    return found is not None and found.HandBatches.cuts > 0


def _take_place(task: Task) -> None:
    os.environ.clear()
    os.environ.update(task.environment)
    use_temporary_folder(task.scratch)
    resource.setrlimit(resource.RLIMIT_FSIZE, (task.disk_bytes, task.disk_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    stacks = os.open(task.stacks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    sys.stdin = io.TextIOWrapper(io.FileIO(os.open(os.devnull, os.O_RDONLY)))
    os.chdir(task.scratch.folder)
    script = task.scratch.script
    sys.argv = [str(script) if task.module else os.path.relpath(script, task.scratch.folder), *task.arguments]
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder in which we were started
    imports.from_mirror(task.scratch, task.home)
    sys.dont_write_bytecode = True


def _put_hooks_in(task: Task, recorder: Recorder) -> tuple[training.Steps, data.Loaders]:
    _seed()
    sandbox = Sandbox(task.scratch, recorder)
    collectives.install(recorder)
    if task.ports:
        ports.install(task.ports)
    if task.by_hand:
        spawning.install(recorder, task.processes, task.spawned)
    loaders = data.Loaders(recorder, task.double, task.pretend)
    loaders.install()
    if task.exact:
        order.install()
        layers.install(recorder)
        layers.determinism(recorder)
        noise.Noise(recorder, loaders.hand).install()
    steps = training.install(recorder)
    files.install(recorder, sandbox.about_to_write)
    libraries.install(recorder, loaders, sandbox.about_to_write, task.split)
    sandbox.install()
    if task.double:
        double.install()
    if task.pretend:
        pretended.install()
    if task.ahead:
        clocks.install()
    return steps, loaders


def _seed() -> None:
    random.seed(0)
    torch.manual_seed(0)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)


def _script(task: Task, recorder: Recorder) -> int:
    """Run the script as `python script.py` would; its errors are its own, whatever they are."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=str(task.scratch.script), __builtins__=builtins)
    if task.module:
        spec = importlib.util.spec_from_file_location(task.module, task.scratch.script)
        main.__dict__.update(__spec__=spec, __package__=task.module.rpartition(".")[0])
    sys.modules["__main__"] = main
    try:
        _execute(task.scratch.script, main, recorder)
    except SystemExit as asked:
        return _status_of(asked)
    except Ended:
        recorder.write("ended", why="steps")
    except StopIteration as error:
        if not (recorder.shortened and recorder.step_count()):
            _failed(error, recorder)
            return 1
        recorder.write("ended", why="steps")  # `next(batches)`, of a stream that would have gone on
    except BaseException as error:  # noqa: BLE001  (the script's, which python would print and end with)
        _failed(error, recorder)
        return 1
    return 0


def _execute(path: Path, main: types.ModuleType, recorder: Recorder) -> None:
    """The text of a script, or the code cells of a notebook, one after the other."""
    if path.suffix != ".ipynb":
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), main.__dict__)
        return
    numbered = numbered_cells(path.read_bytes())
    cells.run([(cell_name(str(path), number), cell) for number, cell in numbered], main, recorder)


def _status_of(asked: SystemExit) -> int:
    if asked.code is None:
        return 0
    if isinstance(asked.code, int):
        return asked.code & 0xFF
    sys.stderr.write(f"{asked.code}\n")
    return 1


def _failed(error: BaseException, recorder: Recorder) -> None:
    """Say so as python does, without our own frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, cells.__file__):
        trace = trace.tb_next
    frames = [f for f in traceback.extract_tb(trace) if f.filename.startswith(recorder.root)]
    at = place_of(os.path.relpath(frames[-1].filename, recorder.base), frames[-1].lineno or 0) if frames else "?"
    text = "".join(traceback.format_exception(type(error), error, trace))
    recorder.write("error", kind=type(error).__name__, message=str(error)[:2000], at=at, text=text[-8000:])
    sys.excepthook(type(error), error, trace)


def _leave(status: int, recorder: Recorder) -> int:
    """What python does at its end: wait for threads, run what was registered, flush."""
    recorder.leave("left")
    try:
        shutdown: Any = getattr(threading, "_shutdown")  # noqa: B009
        shutdown()
        atexit._run_exitfuncs()
    except SystemExit as asked:
        status = _status_of(asked)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return status
