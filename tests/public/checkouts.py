"""A program of the ledger on disk: exported from its checkout, mended for today's torch, with its small data."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from .ledger import Entry

_COPIED = {".py", ".ipynb", ".yaml", ".yml", ".json", ".toml", ".cfg", ".txt"}
"""Files that a mend or a migration may touch; all others are linked to the export."""


_LARGE = 4 << 20
_EXPORTING = threading.Lock()


class LeftOutError(Exception):
    """A program cannot be had as its entry describes it; the message says why."""


def repository(entry: Entry, folder: Path) -> Path:
    """
    The checkout of an entry: FOLDER/OWNER/NAME, or FOLDER/NAME; bare or with a work tree.

    Raises:
        LeftOutError: there is none, or it lacks the commit.
    """
    _, _, name = entry.repository.partition("/")
    for place in (folder / entry.repository, folder / name):
        if place.is_dir():
            break
    else:
        raise LeftOutError(f"no checkout: {folder / entry.repository} is missing")
    if _git(place, "cat-file", "-e", f"{entry.commit}^{{commit}}").returncode:
        head = _git(place, "rev-parse", "--short", "HEAD").stdout.decode().strip()
        raise LeftOutError(f"{place} has no commit {entry.commit[:12]}" + (f"; it stands at {head}" if head else ""))
    return place


def export(entry: Entry, folder: Path, cache: Path) -> Path:
    """
    The files of an entry's commit, taken from its checkout once and kept in `cache`.

    Files of 4 MiB and more are left out, and those whose contents the checkout lacks.
    """
    place = repository(entry, folder)
    target = cache / f"{entry.repository.replace('/', '+')}@{entry.commit[:12]}"
    with _EXPORTING:
        if not target.is_dir():
            beside = Path(tempfile.mkdtemp(dir=cache))
            for name, data in _files(place, entry.commit):
                path = beside / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            beside.rename(target)
    return target


def _files(place: Path, commit: str) -> Iterator[tuple[str, bytes]]:
    listed = _git(place, "ls-tree", "-r", "-l", "-z", commit).stdout.split(b"\0")[:-1]
    rows = [(*line.partition(b"\t")[0].split(), line.partition(b"\t")[2]) for line in listed]
    wanted = [
        (sha, name) for _, kind, sha, size, name in rows if kind == b"blob" and size.isdigit() and int(size) < _LARGE
    ]
    # Only object ids are given to git: a checkout is foreign, and a file's name may hold anything.
    asked = b"".join(sha + b"\n" for sha, _ in wanted)
    answers = _git(place, "cat-file", "--batch", given=asked).stdout
    at = 0
    for _, name in wanted:
        end = answers.index(b"\n", at)
        header, at = answers[at:end].split(), end + 1
        if header[-1] != b"missing":
            size = int(header[2])
            yield name.decode(errors="surrogateescape"), answers[at : at + size]
            at += size + 1


def lay_out(entry: Entry, folder: Path, cache: Path, target: Path) -> Path:
    """
    Lay a program out below `target`, mended, without data.

    Returns:
        the folder that it is started from.

    Raises:
        LeftOutError: its checkout, its script or a line to mend is not there.
    """
    source = export(entry, folder, cache)
    if not (source / entry.script).is_file():
        raise LeftOutError(f"{entry.script} is not in commit {entry.commit[:12]}: it has moved")
    shutil.copytree(source, target, copy_function=_link)
    mend(entry, target)
    return target / entry.place


def _link(source: str, target: str) -> None:
    if Path(source).suffix in _COPIED:
        shutil.copyfile(source, target)
    else:
        os.link(source, target)


def mend(entry: Entry, target: Path) -> None:
    """
    Replace the lines that today's torch refuses.

    Raises:
        LeftOutError: a line is not the one that the entry describes.
    """
    files: dict[str, list[bytes]] = {}
    for fix in entry.mends:
        path = target / fix.file
        if fix.file not in files:
            if not path.is_file():
                raise LeftOutError(f"{fix.file}, which the entry mends, is not there")
            files[fix.file] = path.read_bytes().splitlines(keepends=True)
        lines = files[fix.file]
        old = lines[fix.line - 1] if 0 < fix.line <= len(lines) else b""
        body = old.rstrip(b"\r\n")
        if digest(body) != fix.was:
            raise LeftOutError(f"{fix.file}:{fix.line}: the line to mend is another one")
        lines[fix.line - 1] = fix.now.encode() + old[len(body) :]
    for name, lines in files.items():
        (target / name).write_bytes(b"".join(lines))


def digest(line: bytes) -> str:
    """How an entry names a line that it replaces."""
    return hashlib.sha256(line).hexdigest()[:16]


def make_data(entry: Entry, place: Path, python: Path) -> None:
    """
    Make the small data of a program, with the python that has what the recipes need.

    Raises:
        LeftOutError: a recipe fails.
    """
    if not entry.data:
        return
    script = Path(__file__).with_name("data.py")
    ended = subprocess.run(
        [str(python), str(script)],
        input=json.dumps([dict(recipe) for recipe in entry.data]),
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise LeftOutError(f"its data cannot be made: {ended.stderr.strip().splitlines()[-1:]}")


def _git(place: Path, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(place), *words], input=given, capture_output=True, check=False)
