"""
Verdicts on programs that need no change, kept in ``.torchlift_cache`` so that the next run need not analyse them again.

A verdict is kept only if it changes and blocks no file. Its findings are kept too, and are reported each time. A
program that would change is always analysed again. There is one file for each program, with a line for each of its
latest
verdicts: the key, a checksum, and the verdict. A file is replaced as a whole: of two runs at the same time, one may
    overwrite the other's verdicts, but neither reads half a file.

Nothing in here raises an error: what cannot be read or written is left out, and a note says so on request.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..findings import Severity
from ..result import BehaviourReport, CausePlace, Diagnosis, FileResult, Result, RoleReport, Trait
from ..source import Source
from .keys import UnknownVersion, digest

FOLDER = ".torchlift_cache"
_MOST = 8
"""The number of verdicts kept for one program: for other options, and for branches that a user switches between."""
_OWN_FILES = {
    ".gitignore": "# Made by torchlift.\n*\n",
    "CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This folder is a cache of torchlift. About such tags see https://bford.info/cachedir/\n",
}


class CachePlace(NamedTuple):
    """Where the verdict on one program is kept."""

    file: Path
    key: str


class Cache:
    """The cache folders of one run: one for each project that it reads."""

    def __init__(self, judge: Callable[[], str]) -> None:
        """``judge`` returns the digest of all code that affects a verdict, or raises ``UnknownVersion``."""
        self._judge = judge
        self._judged_by: str | None = None
        self._lines: dict[Path, list[str]] = {}
        """The content of each cache file when it was read."""
        self._closed: set[Path] = set()
        """Folders that cannot be written."""
        self._asked = self._found = 0
        self._notes: list[str] = []

    def slot(self, root: Path, entry: Path, subject: str) -> CachePlace | None:
        """The place for a program below the root of its project; None if nothing can be kept."""
        if self._judged_by is None:
            try:
                self._judged_by = self._judge()
            except UnknownVersion as why:
                self._judged_by = ""
                self._notes.append(f"the cache is not used: {why}")
        if not self._judged_by:
            return None
        name = digest(Path(os.path.relpath(entry, root)).as_posix())
        return CachePlace(root / FOLDER / name, digest((self._judged_by, subject)))

    def find(self, slot: CachePlace, sources: Sequence[Source]) -> Result | None:
        """The verdict on a program with these files, if it is known."""
        self._asked += 1
        line = next((line for line in self._read(slot.file) if line.startswith(slot.key)), None)
        if line is None:
            return None
        try:
            _, checksum, text = line.split(" ", 2)
            if checksum != digest(text):
                raise ValueError
            found = _restored(text, sources)
        except (ValueError, TypeError, KeyError):
            self._notes.append(f"{slot.file} is damaged, and was ignored")
            return None
        self._found += 1
        return found

    def keep(self, slot: CachePlace, result: Result) -> None:
        """Keep a verdict if it says that no change is needed."""
        if result.changed or result.blocked or slot.file.parent in self._closed:
            return
        text = _recorded(result)
        others = [line for line in self._read(slot.file) if not line.startswith(slot.key)]
        lines = [f"{slot.key} {digest(text)} {text}", *others][:_MOST]
        try:
            _make(slot.file.parent)
            _replace(slot.file, "\n".join(lines).encode())
        except OSError as error:
            self._closed.add(slot.file.parent)
            self._notes.append(
                f"{slot.file.parent} cannot be written ({error.strerror or error}): the cache is not saved"
            )
            return
        self._lines[slot.file] = lines

    def notes(self) -> list[str]:
        """Notes about the cache, as sentences without their full stop."""
        counts = [f"{self._found} of {self._asked} files were found in the cache"] if self._asked else []
        return [*counts, *dict.fromkeys(self._notes)]

    def _read(self, file: Path) -> list[str]:
        if file not in self._lines:
            lines: list[str] = []
            try:
                lines = file.read_text("ascii").split("\n")
            except FileNotFoundError:
                pass
            except OSError as error:
                self._notes.append(f"{file} cannot be read ({error.strerror or error}), and was ignored")
            except ValueError:
                self._notes.append(f"{file} is damaged, and was ignored")
            self._lines[file] = lines
        return self._lines[file]


def _recorded(result: Result) -> str:
    files = [[f.diagnoses, f.roles, f.traits, f.idle, f.behaviour] for f in result.files]
    return json.dumps({"options": dict(result.options), "files": files})


def _restored(text: str, sources: Sequence[Source]) -> Result:
    known = json.loads(text)
    files = tuple(
        FileResult(
            source,
            source.data,
            diagnoses=tuple(map(_diagnosis, diagnoses)),
            roles=tuple(RoleReport(*role) for role in roles),
            traits=tuple(Trait(*trait) for trait in traits),
            idle=tuple(idle),
            behaviour=tuple(BehaviourReport(*told) for told in behaviour),
        )
        for source, (diagnoses, roles, traits, idle, behaviour) in zip(sources, known["files"], strict=True)
    )
    return Result(files, len(files), known["options"])


def _diagnosis(told: Sequence[Any]) -> Diagnosis:
    id, severity, message, remedy, line, column, end, cause, case = told
    place = CausePlace(*cause) if cause is not None else None
    return Diagnosis(id, Severity(severity), message, remedy, line, column, end, place, case)


def _make(folder: Path) -> None:
    """Create a cache folder that version control and backups ignore."""
    folder.mkdir(exist_ok=True)
    for name, text in _OWN_FILES.items():
        if not (folder / name).exists():
            (folder / name).write_text(text, "ascii")


def _replace(file: Path, data: bytes) -> None:
    """Replace the content of a file atomically: a reader sees the old content or the new one."""
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        new.write_bytes(data)
        new.replace(file)
    except OSError:
        new.unlink(missing_ok=True)
        raise
