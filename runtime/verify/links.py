"""Links in a mirror become folders and files of its own before anything is written below them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MOST_LINKS = 200_000
_LOCK = ".links"


def own(top: str, path: str, keep: bool = True, folders: bool = False) -> None:
    """
    Make sure that a write to `path` stays below `top`: links on the way become folders of links, the file a copy.

    Args:
        top: of the mirror.
        path: below it.
        keep: copy what the file holds.
        folders: a link to a folder at the end of the path becomes a folder, too.
    """
    *above, name = Path(os.path.relpath(path, top)).parts or ("",)
    place, end = top, os.path.join(top, *above, name)  # noqa: PTH118
    if os.path.realpath(end) == end:
        return
    with _alone(top):
        for part in above:
            place = os.path.join(place, part)  # noqa: PTH118
            if os.path.islink(place):  # noqa: PTH114
                if below(os.path.realpath(place), top):
                    place = os.path.realpath(place)
                    continue
                if not os.path.isdir(place):  # noqa: PTH112
                    return
                expand(top, place)
        _own_end(top, os.path.join(place, name), keep, folders)  # noqa: PTH118


def _own_end(top: str, place: str, keep: bool, folders: bool) -> None:
    if not os.path.islink(place):  # noqa: PTH114
        return
    target = os.path.realpath(place)
    if below(target, top):
        return
    if os.path.isdir(place):  # noqa: PTH112
        if folders:
            expand(top, place)
        return
    os.unlink(place)  # noqa: PTH108
    if keep and os.path.isfile(target):  # noqa: PTH113
        shutil.copyfile(target, place)


@contextmanager
def _alone(top: str) -> Iterator[None]:
    """One process of a run at a time: they share the mirror."""
    if os.name != "posix":
        yield
        return
    import fcntl

    lock = os.open(os.path.join(top, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)  # noqa: PTH118
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def expand(top: str, link: str) -> None:
    """
    Turn a link to a folder into a folder of links to what is in it.

    It is filled elsewhere below `top` and takes the link's place in one move: another process of the run may be reading
    files through the link.
    """
    target = os.path.realpath(link)
    folder = os.path.join(top, f"{_LOCK}.new")  # noqa: PTH118
    shutil.rmtree(folder, ignore_errors=True)  # of a process that was stopped in here
    os.mkdir(folder)  # noqa: PTH102
    for count, entry in enumerate(os.scandir(target)):
        if count < _MOST_LINKS:
            os.symlink(entry.path, os.path.join(folder, entry.name))  # noqa: PTH118,PTH211
    os.unlink(link)  # noqa: PTH108
    os.rename(folder, link)  # noqa: PTH104


def below(path: str, folder: str) -> bool:
    """Whether a path is a folder, or is in it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
