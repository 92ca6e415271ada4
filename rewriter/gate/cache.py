"""
Verdicts on programs that need no change, kept in ``.torchlift_cache`` so that the next run need not look again.

Only what leaves every file as it is, and blocks none, is kept, with its findings: they are reported each time. A
program that would change is always looked at. There is one file for each program, with a line for each of its latest
verdicts: the key, a checksum, and the verdict. A file is replaced as a whole, so that of two runs at the same time one
may lose what the other has learned, and neither reads half a file.

Nothing in here is an error for anybody: what cannot be read or written is left out, and noted for those who ask.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..findings import Severity
from ..result import BehaviourReport, Diagnosis, FileResult, Result, RoleReport, Trait
from ..source import Source
from .keys import UnknownVersion, digest

FOLDER = ".torchlift_cache"
_MOST = 8
"""So many verdicts on one program are kept: of other options, and of the branches that somebody goes to and fro."""
_OWN_FILES = {
    ".gitignore": "# Made by torchlift.\n*\n",
    "CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This folder is a cache of torchlift. About such tags see https://bford.info/cachedir/\n",
}


class CachePlace(NamedTuple):
    """Where the verdict on one program is, or would be."""

    file: Path
    key: str


class Cache:
    """The cache folders of one run: of each project that it has to do with."""

    def __init__(self, judge: Callable[[], str]) -> None:
        """``judge`` gives the digest of all that gives verdicts, or raises ``UnknownVersion``."""
        self._judge = judge
        self._judged_by: str | None = None
        self._lines: dict[Path, list[str]] = {}
        """What each file holds, as it was when it was read."""
        self._closed: set[Path] = set()
        """Folders that cannot be written."""
        self._asked = self._found = 0
        self._notes: list[str] = []

    def slot(self, root: Path, entry: Path, subject: str) -> CachePlace | None:
        """The place for a program below the root of its project; None where nothing can be kept."""
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
        """Remember a verdict, if it is that nothing is to be done."""
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
        """What there is to say of it, in sentences without their full stop."""
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
            diagnoses=tuple(Diagnosis(id, Severity(severity), *rest) for id, severity, *rest in diagnoses),
            roles=tuple(RoleReport(*role) for role in roles),
            traits=tuple(Trait(*trait) for trait in traits),
            idle=tuple(idle),
            behaviour=tuple(BehaviourReport(*told) for told in behaviour),
        )
        for source, (diagnoses, roles, traits, idle, behaviour) in zip(sources, known["files"], strict=True)
    )
    return Result(files, len(files), known["options"])


def _make(folder: Path) -> None:
    """Make a cache folder that version control and backups leave alone."""
    folder.mkdir(exist_ok=True)
    for name, text in _OWN_FILES.items():
        if not (folder / name).exists():
            (folder / name).write_text(text, "ascii")


def _replace(file: Path, data: bytes) -> None:
    """Give a file new content at once: who reads it meanwhile reads the old one."""
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        new.write_bytes(data)
        new.replace(file)
    except OSError:
        new.unlink(missing_ok=True)
        raise
