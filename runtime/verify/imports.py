"""What the script imports of its own comes from the mirror, also when it is installed in editable mode."""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

from .links import below
from .scratch import Scratch


def from_mirror(scratch: Scratch, home: Path) -> None:
    """
    Let imports begin at `home`, a folder of the mirror, and lead into the mirror wherever they led into its original.
    """
    place = _Places(scratch)
    named = [place.of(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = list(dict.fromkeys([str(home), *named, *map(place.of, sys.path)]))
    sys.path_importer_cache.clear()
    sys.meta_path.insert(0, _InMirror(place))


class _Places:
    """Paths of the program's folder, as paths of its mirror."""

    def __init__(self, scratch: Scratch) -> None:
        self._original = os.path.realpath(scratch.original)
        self._mirror = str(scratch.folder)
        self._python = os.path.realpath(sys.prefix)

    def of(self, path: str) -> str:
        """Where a path leads to in the mirror; itself if it is elsewhere. Relative ones begin at the folder."""
        if not os.path.isabs(path):  # noqa: PTH117
            return os.path.normpath(os.path.join(self._mirror, path))  # noqa: PTH118
        real = os.path.realpath(path)
        if not below(real, self._original) or below(real, self._python) or "/site-packages" in real:
            return path
        found = os.path.normpath(os.path.join(self._mirror, os.path.relpath(real, self._original)))  # noqa: PTH118
        return found if below(os.path.realpath(found), os.path.realpath(self._mirror)) else path


class _InMirror(MetaPathFinder):
    """Top-level modules that others find in the program's folder."""

    def __init__(self, place: _Places) -> None:
        self._place = place

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The module of the mirror; nothing if it is no module of the program's folder."""
        if path is not None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is None:
                continue
            origin = spec.origin or ""
            mirrored = self._place.of(origin) if os.path.isabs(origin) else origin  # noqa: PTH117
            if mirrored == origin:
                return None
            folders = spec.submodule_search_locations
            return spec_from_file_location(
                name, mirrored, submodule_search_locations=[self._place.of(one) for one in folders] if folders else None
            )
        return None
