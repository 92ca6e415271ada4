"""A copy of a script's surroundings to run in: small files copied, large ones linked, the folders above mirrored."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .links import below, own
from .request import RequestError, Script

PREFIX = "torchlift-verify-"
"""Of the folders that mirrors are made in; they are never mirrored themselves."""
_SMALL = 1_000_000
"""Files above so many bytes are linked."""
_MOST_FILES = 3_000
_MOST_BYTES = 100_000_000
"""Beyond either of them, all else is linked."""
_LEVELS = 2
"""So many folders above are mirrored as links, for `../data`."""
_MOST_LINKS = 3_000
_SKIPPED = {"__pycache__", ".hg", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".torchlift_cache"}


@dataclass(frozen=True)
class Scratch:
    """One mirror."""

    top: Path
    """The whole of it; writes below stay in the mirror."""
    folder: Path
    """Takes the place of the program's folder."""
    script: Path
    original: Path
    """The folder that it mirrors: nothing is ever written there."""
    temporary: Path

    @property
    def tree(self) -> Path:
        """The folder and those above it."""
        return self.top / "tree"


def mirror(program: Script, where: Path) -> Scratch:
    """
    Make a mirror of a program's surroundings.

    Args:
        program: its texts are laid over the copy.
        where: a new folder.

    Raises:
        OSError: something cannot be read or written.
        RequestError: a text belongs to a file that is too far from the program's folder.
    """
    where.mkdir(parents=True)
    temporary = where / "tmp"
    temporary.mkdir()
    folder = _links_above(program.folder, where / "tree")
    _Copy(program.folder, folder).everything()
    for name, data in program.texts.items():
        _lay(Path(os.path.normpath(folder / name)), data, where, name)
    script = folder / program.script.relative_to(program.folder)
    return Scratch(where, folder, script, program.folder, temporary)


def _lay(path: Path, data: bytes, where: Path, name: str) -> None:
    """Put a text in its place; what is linked on the way there becomes the mirror's own."""
    if not below(str(path), str(where / "tree")):
        raise RequestError(
            f"{name} is more than {_LEVELS} folders above the one that the script runs in. Start from a folder that "
            "holds the whole program"
        )
    own(str(where), str(path), keep=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _links_above(folder: Path, top: Path) -> Path:
    """Folders for `folder` and those above it, with links to what is beside them."""
    levels = [folder, *folder.parents][: _LEVELS + 1]
    place = top
    place.mkdir()
    for above, inside in zip(levels[:0:-1], levels[-2::-1], strict=True):
        for count, entry in enumerate(_entries(above)):
            if count < _MOST_LINKS and entry.path != str(inside):
                os.symlink(entry.path, place / entry.name)  # noqa: PTH211
        place = place / inside.name
        place.mkdir()
    return place


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        found = [entry for entry in os.scandir(folder) if not entry.name.startswith(PREFIX)]
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)


class _Copy:
    """Copies small files; the rest is linked."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target
        self._files, self._bytes = _MOST_FILES, _MOST_BYTES

    def everything(self) -> None:
        """Copy the whole folder."""
        self._folder(self._source, self._target)

    def _folder(self, source: Path, target: Path) -> None:
        for entry in _entries(source):
            place = target / entry.name
            if entry.name in _SKIPPED:
                continue
            if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
                os.symlink(self._meant(entry), place)  # noqa: PTH211
            elif entry.is_dir():
                environment = any((Path(entry.path) / name).exists() for name in ("pyvenv.cfg", "conda-meta"))
                if self._files <= 0 or entry.name.startswith(".") or environment:
                    os.symlink(entry.path, place)  # noqa: PTH211
                else:
                    place.mkdir()
                    self._folder(Path(entry.path), place)
            else:
                self._file(entry, place)

    def _meant(self, entry: os.DirEntry[str]) -> str:
        """Where a link leads to: inside the folder, to the copy."""
        target, source = os.path.realpath(entry.path), os.path.realpath(self._source)
        return str(self._target / os.path.relpath(target, source)) if below(target, source) else target

    def _file(self, entry: os.DirEntry[str], place: Path) -> None:
        size = entry.stat().st_size
        if size > _SMALL or self._files <= 0 or self._bytes < size or not os.access(entry.path, os.R_OK):
            os.symlink(entry.path, place)  # noqa: PTH211
            return
        shutil.copy2(entry.path, place)
        place.chmod(place.stat().st_mode | 0o200)
        self._files -= 1
        self._bytes -= size


@dataclass(frozen=True)
class FileState:
    """A file in a mirror: enough to see that it has changed."""

    size: int
    modified: int
    inode: int


def snapshot(scratch: Scratch) -> dict[str, FileState]:
    """All files of a mirror, by path relative to the program's folder. Links into the user's folders are left out."""
    found: dict[str, FileState] = {}
    for folder, folders, names in os.walk(scratch.tree):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118
            if os.path.islink(path):  # noqa: PTH114
                continue
            try:
                state = os.lstat(path)
            except OSError:
                continue
            found[os.path.relpath(path, scratch.folder)] = FileState(state.st_size, state.st_mtime_ns, state.st_ino)
    return found


def used(scratch: Scratch) -> int:
    """Bytes in a mirror, its temporary files included."""
    total = 0
    for folder, _, names in os.walk(scratch.top):
        for name in names:
            total += _size(os.path.join(folder, name))  # noqa: PTH118
    return total


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def hash_of(path: Path) -> str:
    """A hash of a file's bytes."""
    found = hashlib.blake2b(digest_size=8)
    with path.open("rb") as stream:
        while block := stream.read(1_000_000):
            found.update(block)
    return found.hexdigest()
