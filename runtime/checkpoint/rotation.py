"""Numbered checkpoints: which is the newest, and which are too many."""

from __future__ import annotations

import re
from pathlib import Path

from .folders import clear_removed, problems, remove

_NAME = re.compile(r"checkpoint_(\d+)")


def number_of(folder: Path) -> int | None:
    """The number in a name like `checkpoint_3`; None for any other name."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


def numbered(parent: Path) -> list[tuple[int, Path]]:
    """The numbered folders in `parent`, the oldest first."""
    if not parent.is_dir():
        return []
    found = [(number_of(path), path) for path in parent.iterdir() if path.is_dir()]
    return sorted((number, path) for number, path in found if number is not None)


def newest_whole(parent: Path) -> tuple[Path | None, list[str]]:
    """The newest folder with a valid manifest, and a line about each newer one that was passed over."""
    passed: list[str] = []
    for _, path in reversed(numbered(parent)):
        wrong = problems(path)
        if not wrong:
            return path, passed
        passed.append(f"{path}: {'; '.join(wrong)}")
    return None, passed


def prune(parent: Path, limit: int | None, newest: Path) -> None:
    """Remove the oldest numbered folders, until `limit` are left. The one just written always stays."""
    if limit is None:
        return
    clear_removed(parent)
    others = [path for _, path in numbered(parent) if path != newest]
    for path in others[: max(0, len(others) + 1 - limit)]:
        remove(path)
