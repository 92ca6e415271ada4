"""Starts processes from one that has imported torch (`forks.py`), and waits for them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


class Forks:
    """
    Starts processes from one that has imported torch (`forks.py`).

    Args:
        modules: what else it has imported.
    """

    def __init__(self, *modules: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("forks.py")), *modules]
        # what is read once, at the start of an interpreter or at the import of torch
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        settings = {**threads, "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "error::FutureWarning"}
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **settings}
        )
        self._ended: dict[int, int] = {}

    def start(self, argv: list[str], cwd: Path, env: Mapping[str, str], apart: bool = False) -> Fork:
        """
        Start a process.

        Args:
            argv: a script, or `-m` and a module, and the arguments.
            cwd: its folder.
            env: its whole environment.
            apart: its errors are kept apart from what it prints.
        """
        names = []
        for _ in range(1 + apart):
            descriptor, name = tempfile.mkstemp()
            os.close(descriptor)
            names.append(name)
        request = {"argv": argv, "cwd": str(cwd), "env": dict(env), "out": names[0], "err": names[-1]}
        assert self._server.stdin
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        while (pid := self._hear()) is None:
            pass
        return Fork(pid, self, [Path(name) for name in names])

    def status(self, pid: int, until: float) -> int | None:
        """How a process has ended; None if it has not by then (`time.monotonic()`)."""
        assert self._server.stdout
        while pid not in self._ended:
            ready, _, _ = select.select([self._server.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            self._hear()
        return self._ended[pid]

    def _hear(self) -> int | None:
        """Read one answer: the number of a process that has started, or the status of one that has ended."""
        assert self._server.stdout
        line = b""
        while not line.endswith(b"\n"):  # byte by byte: what is buffered, `select` does not see
            byte = os.read(self._server.stdout.fileno(), 1)
            assert byte, "the process that forks has ended"
            line += byte
        answer: dict[str, int] = json.loads(line)
        if "ended" in answer:
            self._ended[answer["ended"]] = answer["status"]
        return answer.get("started")

    def close(self) -> None:
        """End the server, and with it all that it has started."""
        self._server.communicate(timeout=60)


class Fork:
    """A process that was started by `Forks`, with the words of `subprocess.Popen`."""

    def __init__(self, pid: int, forks: Forks, outputs: list[Path]) -> None:
        self.pid = pid
        self._forks = forks
        self._outputs = outputs

    def wait(self, seconds: float) -> int | None:
        """Its exit status; None if it still runs after so many seconds: then it and its children are killed."""
        status = self._forks.status(self.pid, time.monotonic() + seconds)
        if status is None:
            with suppress(ProcessLookupError):  # it may end by itself meanwhile: late all the same
                os.kill(self.pid, signal.SIGUSR2)  # it writes where each of its threads stands
                self._forks.status(self.pid, time.monotonic() + 2)
                os.killpg(self.pid, signal.SIGUSR2)  # and so do the workers of its loaders: it may wait for one of them
                self._forks.status(self.pid, time.monotonic() + 2)
                os.killpg(self.pid, signal.SIGKILL)
                self._forks.status(self.pid, time.monotonic() + 60)
        return status

    def output(self) -> list[str]:
        """What it has printed, and its errors where they are kept apart; the files are removed."""
        texts = [path.read_text(errors="replace") for path in self._outputs]
        for path in self._outputs:
            path.unlink()
        return texts
