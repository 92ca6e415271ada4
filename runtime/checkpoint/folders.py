"""
Folders that exist whole or not at all.

Everything is written into a temporary folder, listed with checksums in a manifest, forced to the disk, and only then
given its name. A folder without a valid manifest is no checkpoint of ours.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, CheckpointPathError

MANIFEST = "manifest.json"
_PARTIAL = ".partial"
_OLD = ".old"
_REMOVED = ".removed"
_CHUNK = 1 << 20


def stage(target: Path) -> Path:
    """
    Make an empty temporary folder for what will be `target`. What a crashed save has left is brought to its end before.

    Raises:
        CheckpointPathError: `target` is a file, or its place cannot be written to.
    """
    if target.exists() and not target.is_dir():
        raise CheckpointPathError(f"cannot save to {target}: it is a file. Give the name of a folder.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        settle(target)
        for left in (_inside(target), _beside(target)):
            if left.exists():
                shutil.rmtree(left)
        folder = staging_of(target)
        folder.mkdir()
    except OSError as error:
        raise CheckpointPathError(f"cannot save to {target}: {error}") from error
    return folder


def staging_of(target: Path) -> Path:
    """Where `target` is prepared: on the same disk, so that a rename is all that is left to do."""
    return _inside(target) if _holds_more(target) else _beside(target)


def commit(folder: Path, target: Path, about: dict[str, Any]) -> None:
    """
    List, force to the disk, and rename.

    A folder that holds other things than a checkpoint is kept: then the files are moved in one by one, the manifest
    last.

    Args:
        folder: from `stage`.
        target: the name it gets.
        about: further entries of the manifest.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        to_disk(path)
        if path.is_file():
            files[str(path.relative_to(folder))] = {"bytes": path.stat().st_size, "sha256": checksum(path)}
    (folder / MANIFEST).write_text(json.dumps({"format": 1, **about, "files": files}, indent=2) + "\n")
    to_disk(folder / MANIFEST)
    to_disk(folder)
    if _holds_more(target):
        if folder != _inside(target):  # other things have come while the checkpoint was written
            folder.rename(_inside(target))
        _move_in(_inside(target), target)
    elif target.exists():
        old = _set_aside(target)
        target.rename(old)
        folder.rename(target)
        shutil.rmtree(old)
    else:
        folder.rename(target)
    to_disk(target.parent)


def _move_in(folder: Path, target: Path) -> None:
    """
    Move a complete checkpoint into a folder that holds other things, file by file.

    It may have been begun before, and cut off: every step may be done again. Until the end, the existing
    manifest does not fit the files, so that nobody takes a mixture for a checkpoint.
    """
    names = files_of(folder) or []
    for name in set(files_of(target) or ()) - set(names):
        (target / name).unlink(missing_ok=True)
    for name in [*names, MANIFEST]:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (folder / name).exists():
            (folder / name).replace(target / name)
    shutil.rmtree(folder)
    to_disk(target)


def settle(target: Path) -> None:
    """
    Bring to its end what a crash has cut off in the middle of `commit`.

    Between two renames, the old folder has another name: it gets its own back. Files of a complete checkpoint that were
    being moved into a folder are moved in, all of them.
    """
    old = _set_aside(target)
    if old.exists():
        if target.exists():
            shutil.rmtree(old)
        else:
            old.rename(target)
    if read_manifest(_inside(target)) is not None:
        _move_in(_inside(target), target)


def settle_all(parent: Path) -> None:
    """`settle`, for every folder in `parent`."""
    if parent.is_dir():
        for path in list(parent.iterdir()):
            if path.name.startswith(".") and path.name.endswith(_OLD):
                settle(parent / path.name[1 : -len(_OLD)])
            elif path.is_dir():
                settle(path)


def remove(folder: Path) -> None:
    """Remove a checkpoint at one stroke: a crash in the middle leaves no half of it under its name."""
    hidden = folder.parent / f".{folder.name}{_REMOVED}"
    folder.rename(hidden)
    shutil.rmtree(hidden)


def clear_removed(parent: Path) -> None:
    """Finish the removals that a crash has cut off."""
    for hidden in parent.glob(f".*{_REMOVED}"):
        shutil.rmtree(hidden)


def _set_aside(target: Path) -> Path:
    return target.parent / f".{target.name}{_OLD}"


def _inside(target: Path) -> Path:
    return target / _PARTIAL


def _beside(target: Path) -> Path:
    return target.parent / f".{target.name}{_PARTIAL}"


def _holds_more(target: Path) -> bool:
    """The folder exists, and holds things that are not of a checkpoint that it holds."""
    if not target.exists():
        return False
    known = {name.split("/", 1)[0] for name in files_of(target) or ()} | {MANIFEST}
    return any(path.name not in known for path in target.iterdir())


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What the manifest says; None where there is none, or none that can be understood."""
    try:
        found = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("files"), dict) else None


def files_of(folder: Path) -> list[str] | None:
    """The files that the manifest of a folder lists; None without a manifest."""
    manifest = read_manifest(folder)
    return None if manifest is None else list(manifest["files"])


def problems(folder: Path) -> list[str]:
    """What is wrong with a folder, measured by its manifest; nothing when it is whole."""
    manifest = read_manifest(folder)
    if manifest is None:
        return [f"{MANIFEST} is missing or damaged"]
    found = []
    for name, entry in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif path.stat().st_size != entry["bytes"]:
            found.append(f"{name} has {path.stat().st_size} bytes instead of {entry['bytes']}")
        elif checksum(path) != entry["sha256"]:
            found.append(f"{name} has another checksum")
    return found


def check_whole(folder: Path) -> None:
    """
    Compare a folder with its manifest. A folder without one (of Accelerate) is taken as it is.

    Raises:
        CheckpointPathError: there is no such folder.
        CheckpointError: it is damaged.
    """
    if not folder.is_dir():
        raise CheckpointPathError(f"there is no folder {folder} to load from. Check the path.")
    if not (folder / MANIFEST).exists():
        return
    wrong = problems(folder)
    if wrong:
        raise CheckpointError(f"the checkpoint {folder} is damaged: {'; '.join(wrong)}. Load an older one.")


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
