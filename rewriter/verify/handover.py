"""
The rewriter's side of a verification: find a Python that imports torch, pass both texts to the runtime, read the
verdict.

The runtime does the work, in a separate process; the two exchange only versioned JSON.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from ..result import FileResult
from ..validation.foreseen import FORESEEN
from .options import Asked, VerifyError

T = TypeVar("T")

VERSION = 1
"""The version of the format of the request and of the verdict."""
_PROBE = """
import importlib.util as u
def has(name):
    try:
        return u.find_spec(name) is not None
    except ImportError:
        return False
print(int(has("torch")), int(has("torchlift.runtime.verify")))
"""
_PROBE_SECONDS = 30
_CONCLUSIONS = {0: "HELD.", 1: "BROKEN."}
"""In short, by status, of a runtime that says no more."""
_BY_NATURE = ("in-batch-pairs", "weighted-mean", "process-memory")
"""Findings which say that training on several processes differs from the original, even if the migration is correct."""
_WEIGHED = ("backward", "mixed")
"""One more of these, with its case: a sum in the loss weighs as in one batch of the script."""


@dataclass(frozen=True)
class SeenPromise:
    """The outcome of one promise, on one number of processes."""

    id: str
    promise: str
    processes: int
    outcome: str
    """``held``, ``broken`` or ``not testable``."""
    detail: str
    step: int | None
    figure: str

    @property
    def foreseen_by(self) -> tuple[str, ...]:
        """The invariants of the check of the migrated program that foresee a break of it."""
        return FORESEEN.get(self.id, ())


@dataclass(frozen=True)
class SeenRow:
    """One row of the table: a promise on the numbers of processes ``on``, or several of which the same is said."""

    promise: str
    on: str
    outcome: str
    detail: str = ""
    at: str = ""
    """The line that a broken promise points to, of the script that ``side`` names."""
    code: str = ""
    """What that line says."""
    side: str = ""
    cause: str = ""
    """The likeliest cause; empty where none is likelier than others."""
    origin: str = ""
    """A second line, where the cause is, and what it says."""
    origin_code: str = ""


@dataclass(frozen=True)
class SeenVerdict:
    """The verdict, as far as the reports need it; ``data`` is all of it."""

    status: int
    """0 held, 1 broken, 2 the original itself fails, or has nothing that could be compared."""
    mode: str
    promises: tuple[SeenPromise, ...]
    notes: tuple[str, ...]
    drawing: tuple[str, ...]
    original_error: str
    """The traceback of the original if it fails; empty if it runs."""
    kept: tuple[str, ...]
    """Temporary folders that were kept."""
    data: Mapping[str, Any]
    check_passed: bool = True
    """The check of the migrated program found nothing before the program ran."""
    conclusion: str = ""
    """Whether the promises are held, in one line."""
    rows: tuple[SeenRow, ...] = ()
    left_out: str = ""
    """What the script does nothing of, in a sentence."""


def verify(files: Sequence[FileResult], script: Path, asked: Asked, sharded: bool = False) -> SeenVerdict:
    """
    Verify the migrated texts of a program.

    Args:
        files: the program's files, before and after the migration.
        script: the one that is started.
        asked: the options.
        sharded: the migrated script runs with sharded weights on several processes.

    Raises:
        VerifyError: there is no suitable Python, or the runtime returned no verdict.
    """
    python = find_python(asked.python, os.environ)
    verdict = read_verdict(_answer(python, request(files, script, asked, Path.cwd(), sharded)))
    return replace(verdict, check_passed=not any(d.id == "output-check" for file in files for d in file.diagnoses))


def request(
    files: Sequence[FileResult], script: Path, asked: Asked, cwd: Path, sharded: bool = False
) -> dict[str, Any]:
    """The request to the runtime, as plain data. The script runs in ``cwd`` if it is below that folder, else in its own
    folder."""
    path = script.absolute()
    folder = cwd.absolute() if cwd.absolute() in path.parents else path.parent
    program = {"script": str(path), "folder": str(folder)}
    texts = {
        os.path.relpath(file.source.path.absolute(), folder): base64.b64encode(file.after).decode("ascii")
        for file in files
        if file.changed
    }
    return {
        "version": VERSION,
        "original": {**program, "texts": {}},
        "migrated": {**program, "texts": texts},
        "arguments": list(asked.arguments),
        "procs": list(asked.procs),
        "steps": asked.steps,
        "exact": not asked.as_is,
        "double": asked.double,
        "keep": asked.keep,
        "seconds": asked.limit,
        "by_nature": _by_nature(files),
        "sharded": sharded,
        "device": asked.device,
        "distributed": any(trait.kind == "by-hand" for file in files for trait in file.traits),
    }


def _by_nature(files: Sequence[FileResult]) -> str:
    """Why results on several processes may differ from the original's, as the findings say it."""
    found = [(file, d) for file in files for d in file.diagnoses if d.id in _BY_NATURE or (d.id, d.case) == _WEIGHED]
    return "; ".join(f"{file.source.path.name}:{d.line}: {d.message}" for file, d in found[:2])


def find_python(named: str | None, environment: Mapping[str, str]) -> str:
    """
    The interpreter to run with: the one that the user named, else the first that works of: the active environment,
    PATH, ours.

    Raises:
        VerifyError: no interpreter imports torch, or the one that does lacks the runtime.
    """
    lacking = ""
    for candidate in dict.fromkeys(_candidates(named, environment)):
        torch, runtime = _probe(candidate)
        if torch and runtime:
            return candidate
        if torch and not lacking:
            lacking = candidate
    if lacking:
        raise VerifyError(
            f"{lacking} can import torch, but not torchlift.runtime. Run: {lacking} -m pip install torchlift"
        )
    if named:
        raise VerifyError(f"--python {named} cannot import torch. Name the interpreter that runs your script")
    raise VerifyError(
        "no python on PATH can import torch. Activate the environment of your script, or name its interpreter: "
        "--python EXE"
    )


def _candidates(named: str | None, environment: Mapping[str, str]) -> Iterator[str]:
    if named:
        yield shutil.which(named) or named
        return
    if environment.get("VIRTUAL_ENV"):
        yield from (str(path) for path in Path(environment["VIRTUAL_ENV"]).glob("bin/python"))
    for name in ("python", "python3"):
        for folder in environment.get("PATH", "").split(os.pathsep):
            found = shutil.which(name, path=folder)
            if folder and found:
                yield found
    yield sys.executable


def _probe(python: str) -> tuple[bool, bool]:
    """Whether an interpreter imports torch, and whether it imports the runtime."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], cwd=tempfile.gettempdir(), capture_output=True, text=True, timeout=_PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return False, False
    words = done.stdout.split()
    return (words[0] == "1", words[1] == "1") if len(words) == 2 else (False, False)


def _answer(python: str, asked: Mapping[str, Any]) -> str:
    """Start the runtime and return its output; its error messages go to our stderr."""
    with tempfile.TemporaryDirectory(prefix="torchlift-") as neutral:  # empty: no module of the user shadows ours
        command = [python, "-m", "torchlift.runtime.verify", "--request", "-"]
        try:
            done = subprocess.run(command, cwd=neutral, input=json.dumps(asked), stdout=subprocess.PIPE, text=True)
        except OSError as error:
            raise VerifyError(f"{python} cannot be started ({error})") from error
    if done.returncode not in (0, 1, 2) or not done.stdout.strip():
        raise VerifyError(f"the runtime gave no verdict (exit status {done.returncode}). Its output is above")
    return done.stdout


def _known(kind: type[T], data: Mapping[str, Any]) -> T:
    """A promise or a row, without what only a later version of the runtime says of it."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in data.items() if name in names})


def _rows(data: Mapping[str, Any], promises: Sequence[SeenPromise]) -> tuple[SeenRow, ...]:
    """The rows of the table; of a runtime that makes none, one for each promise."""
    if "rows" in data:
        return tuple(_known(SeenRow, row) for row in data["rows"])
    return tuple(
        SeenRow(p.promise, str(p.processes), p.outcome, f"step {p.step}: {p.detail}" if p.step else p.detail)
        for p in sorted(promises, key=lambda p: p.outcome != "broken")
    )


def read_verdict(text: str) -> SeenVerdict:
    """
    Read what the runtime has written.

    Raises:
        VerifyError: it has another version, or is no verdict.
    """
    try:
        data = json.loads(text)
        if data["version"] != VERSION:
            raise VerifyError(
                f"the verdict has version {data['version']}, but this command reads version {VERSION}. Install the "
                "same version of torchlift on both sides"
            )
        failure = data["original_error"]
        promises = tuple(_known(SeenPromise, promise) for promise in data["promises"])
        return SeenVerdict(
            status=data["status"],
            mode=data["mode"],
            promises=promises,
            notes=tuple(data["notes"]),
            drawing=tuple(data["drawing"]),
            original_error=failure["traceback"] if failure else "",
            kept=tuple(run["scratch"] for run in data["runs"] if run["scratch"]),
            data=data,
            conclusion=data.get("conclusion") or _CONCLUSIONS.get(data["status"], "NOT VERIFIED."),
            rows=_rows(data, promises),
            left_out=data.get("left_out", ""),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise VerifyError(f"the runtime's verdict cannot be read ({type(error).__name__}: {error})") from error
