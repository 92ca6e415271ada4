"""
Keeps a script's writes inside its mirror.

An audit hook sees every write before it happens. What is linked into the mirror is copied first (a file) or turned into
a folder of links (a folder), so that the user's own stays as it is. A write past the mirror into the user's folder is
refused; one to anywhere else is reported.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from typing import Any

from .hooks.recorder import Recorder
from .links import below, own
from .scratch import Scratch

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_HARMLESS = ("/dev/", "/proc/", "/sys/")
_ONE_PATH = {
    "os.mkdir": 2,
    "os.rmdir": 1,
    "os.remove": 1,
    "os.truncate": None,
    "os.chdir": None,
    "os.chmod": 2,
    "os.utime": 3,
    "os.chown": 3,
    "shutil.rmtree": 1,
    "sqlite3.connect": None,
}
"""Events, and which of their arguments is the open folder that their path is relative to."""
_OF_FOLDERS = {"os.chmod", "os.chown", "os.rmdir", "os.utime", "shutil.rmtree"}
"""Those that may mean a folder as a whole."""
_TWO_PATHS = {"os.rename": (2, 3), "os.link": (2, 3), "os.symlink": (None, 2)}


class Sandbox:
    """
    Minds the writes of this process and of those that it forks.

    Args:
        scratch: the mirror.
        recorder: of the trace.
    """

    def __init__(self, scratch: Scratch, recorder: Recorder) -> None:
        self._top = os.path.realpath(scratch.top)
        self._user = os.path.realpath(scratch.original)
        self._recorder = recorder
        self._seen: set[tuple[str, str]] = set()
        self._busy = threading.local()

    def install(self) -> None:
        """Begin. There is no end: audit hooks stay."""
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" and event not in _ONE_PATH and event not in _TWO_PATHS:
            return
        if getattr(self._busy, "now", False):
            return
        if event == "open":
            path, mode, flags = arguments
            if _writing(mode, flags):
                truncates = isinstance(flags, int) and bool(flags & os.O_TRUNC)
                self.about_to_write(path, keep=not truncates)
        elif event in _ONE_PATH:
            path = _from_folder(arguments[0], arguments, _ONE_PATH[event])
            if event == "os.chdir":
                self._enter(path)
            else:
                self.about_to_write(path, note=False, folders=event in _OF_FOLDERS)
        elif event in _TWO_PATHS:
            places = _TWO_PATHS[event]
            source, target = (_from_folder(arguments[n], arguments, places[n]) for n in (0, 1))
            if event == "os.rename":
                self.about_to_write(source, note=False)
                self._renamed(source, target)
            self.about_to_write(target)

    def _renamed(self, source: Any, target: Any) -> None:
        if isinstance(source, (str, bytes, os.PathLike)) and isinstance(target, (str, bytes, os.PathLike)):
            self._recorder.write("rename", f=_absolute(source), to=_absolute(target))

    def _enter(self, path: Any) -> None:
        """What is written from inside a folder of the mirror must stay there."""
        if isinstance(path, (str, bytes, os.PathLike)) and below(_absolute(path), self._top):
            self.about_to_write(path, note=False, folders=True)

    def about_to_write(self, path: Any, keep: bool = True, note: bool = True, folders: bool = False) -> None:
        """
        Make room for a write.

        Raises:
            PermissionError: the path is in the user's folder.
        """
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        self._busy.now = True
        try:
            self._look(_absolute(path), keep, note, folders)
        finally:
            self._busy.now = False

    def _look(self, path: str, keep: bool, note: bool, folders: bool) -> None:
        if path.startswith(_HARMLESS):
            return
        if below(path, self._top):
            own(self._top, path, keep, folders)
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118,PTH119,PTH120
        if below(real, self._top):
            if note:
                self._note("write", path)
        elif below(real, self._user):
            raise PermissionError(
                f"verify: the script writes to {real} by its absolute path. A verification runs it in a copy of its "
                "folder and must not change the folder itself: use a path relative to the script."
            )
        else:
            self._note("elsewhere", real)

    def _note(self, event: str, path: str) -> None:
        if (event, path) not in self._seen:
            self._seen.add((event, path))
            self._recorder.write(event, f=path, at=self._recorder.line())


def _from_folder(path: Any, arguments: tuple[Any, ...], place: int | None) -> Any:
    """A path that is relative to an open folder, as one that says where it is."""
    folder = arguments[place] if place is not None and place < len(arguments) else None
    if not isinstance(folder, int) or folder < 0 or not isinstance(path, (str, bytes, os.PathLike)):
        return path
    try:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))  # noqa: PTH115,PTH118
    except OSError:
        return path


def _absolute(path: Any) -> str:
    name = os.fsdecode(path)
    return os.path.normpath(os.path.join(os.path.realpath("."), name))  # noqa: PTH118


def _writing(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str) and any(letter in mode for letter in "wax+"):
        return True
    return isinstance(flags, int) and bool(flags & _WRITES)


def use_temporary_folder(scratch: Scratch) -> None:
    """Temporary files belong to the mirror."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        os.environ[name] = str(scratch.temporary)
    tempfile.tempdir = str(scratch.temporary)
