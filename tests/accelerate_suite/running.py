"""Run a file of tests, or a script on several processes, each in a process of its own with a limit of time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .figures import WORDS, Outcome
from .selection import ANYWHERE, Script

SECONDS = 2400
"""Ten times what the longest file takes."""
SHIM = Path(__file__).with_name("shim")
_ERROR = re.compile(r"[\w.]*(Error|Exception|NotAvailableYet)(: |$)")
"""The last line of a traceback."""
_JOB = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Runner:
    """Starts processes in which `import accelerate` means our runtime."""

    checkout: Path
    python: Path
    logs: Path
    devices: int = 0
    """Virtual devices of torch_xla, which one process drives; none: the CPU."""
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)

    def stop(self) -> None:
        """End everything that runs."""
        for started in list(self._running):
            _end(started)

    def tests(self, file: str, names: str = "") -> dict[str, Outcome]:
        """Run one file of tests, all or those that pytest's -k finds by `names`; the outcome of each."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report"
            command = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "accelerates_outcomes", "-q", "--tb=short", file]
            command += ["-p", "accelerates_anywhere"] if file in ANYWHERE else []
            command += ["-k", " ".join(names.split())] if names else []
            status = self._start(command, Path(folder), Path(file).stem, ACCELERATES_OUTCOMES=str(report))
            lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else []
        outcomes: dict[str, Outcome] = {}
        for name, word, reason in map(json.loads, lines):
            # A test has several reports where it has subtests, or fails while it is taken down.
            if name not in outcomes or _weight(word) > _weight(outcomes[name].word):
                outcomes[name] = Outcome(word, _brief(reason))
        if (status not in (0, 1) or not outcomes) and file not in outcomes:  # a file that cannot be read is there
            outcomes[file] = Outcome("failed", _ending(status) if status else "no tests in it")
        return outcomes

    def script(self, script: Script) -> dict[str, Outcome]:
        """Run one script; it passes where it ends with status 0."""
        with tempfile.TemporaryDirectory() as folder:
            name = re.sub(r"\W+", "_", script.name)
            run = [script.path]
            if script.without:
                module = script.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
                run = [str(SHIM / "accelerates_without.py"), module, *script.without]
            status = self._start([*script.start, *run], Path(folder), name, **dict(script.variables))
        if status == 0:
            return {script.name: Outcome("passed")}
        printed = (self.logs / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
        lines = (re.sub(r"^\[rank\d+\]: ?", "", line) for line in printed)
        said = [line for line in lines if _ERROR.match(line) and "ChildFailedError" not in line]
        return {script.name: Outcome("failed", _brief(said[-1] if said else _ending(status)))}

    def _start(self, command: Sequence[str], home: Path, name: str, **variables: str) -> int | None:
        """The exit status; None where there was no end. What is printed goes to the log."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("w", encoding="utf-8") as log:
            started = subprocess.Popen(
                [str(self.python), *command],
                cwd=self.checkout,
                env={**self._environment(home), **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(started)
            try:
                return started.wait(SECONDS)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _end(started)
                self._running.discard(started)

    def _environment(self, home: Path) -> dict[str, str]:
        """That of the caller without a surrounding job, on the CPU, without a home folder and without a hub."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in _JOB and not name.startswith(("ACCELERATE_", "TORCHLIFT_", "HF_", "PYTEST_"))
        }
        return {
            **kept,
            "PYTHONPATH": str(SHIM),
            "ACCELERATES_CHECKOUT": str(self.checkout),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # what is installed does not change the figures
            "PATH": os.pathsep.join([str(self.python.parent), kept.get("PATH", os.defpath)]),
            "HOME": str(home),
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "RUN_SLOW": "1",
            **({"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(self.devices)} if self.devices else {}),
        }


def _end(started: subprocess.Popen[bytes]) -> None:
    """Leave no process behind, nor what it has started; torchrun ends its own only when it is asked to."""
    with suppress(ProcessLookupError):  # nobody of them is there any more
        os.killpg(started.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            started.wait(30)
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def _weight(word: str) -> int:
    return ("skipped", "passed", "failed").index(word) if word in WORDS else -1


def _ending(status: int | None) -> str:
    return f"no end after {SECONDS} s" if status is None else f"ended with status {status}"


def _brief(reason: str) -> str:
    """One line that is the same in every folder and every run."""
    line = reason.strip().partition("\n")[0]
    line = re.sub(r"/[^\s'\":]*/([^/\s'\":]+)", r"\1", line)
    return re.sub(r"0x[0-9a-f]+", "0x", line)[:240]
