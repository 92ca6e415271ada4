"""What a run has left: traces, stacks, files."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

from .links import below
from .request import Script
from .run_processes import Run
from .scratch import FileState, Scratch, hash_of, snapshot
from .traces import Event, FileSeen, RankTrace, RunTrace, read_events, read_stack

_LONGEST_TEXT = 1_000_000
_TEXTS = {".csv", ".json", ".jsonl", ".log", ".md", ".tsv", ".txt", ".yaml", ".yml"}
_HASHED = 100_000_000


class OriginalNames:
    """
    Paths of a mirror, as the original would name them: two programs in different folders write the same files.

    Args:
        scratch: the mirror.
        original: the program that names are taken from.
    """

    def __init__(self, scratch: Scratch, original: Script) -> None:
        self._scratch = scratch
        self._home = os.path.relpath(scratch.script.parent, scratch.folder)
        self._meant = os.path.relpath(original.script.parent, original.folder)
        self._folder = original.folder

    def of(self, path: str) -> str:
        """A path inside the mirror, relative to the program's folder; others as they are."""
        if not os.path.isabs(path) or self._scratch.top not in Path(path).parents:  # noqa: PTH117
            return path
        return self.relative(os.path.relpath(path, self._scratch.folder))

    def relative(self, name: str) -> str:
        """A path that is relative to the program's folder."""
        name = os.path.normpath(name)
        if self._home != self._meant and below(name, self._home):
            return os.path.normpath(os.path.join(self._meant, os.path.relpath(name, self._home)))  # noqa: PTH118
        return name

    def within(self, text: str) -> str:
        """A text that may name paths of the mirror."""
        if str(self._scratch.top) not in text:
            return text
        for found, meant in (
            (self._scratch.folder / self._home, self._folder / self._meant),
            (self._scratch.folder, self._folder),
            (self._scratch.folder.parent, self._folder.parent),
            (self._scratch.temporary, Path("/tmp")),
        ):
            text = text.replace(str(found), str(meant))
        return text


def collect(run: Run, scratch: Scratch, before: dict[str, FileState], names: OriginalNames) -> RunTrace:
    """
    Read everything about a run that is over.

    Args:
        run: on all its processes.
        scratch: where it ran.
        before: the files that were there when it began.
        names: what its paths are called.
    """
    ranks = []
    for process in run.processes:
        events = [_named(event, scratch, names) for event in read_events(process.task.trace)]
        texts = (data.decode(errors="replace") for data in process.kept)
        output, errors = (text.replace(f"{scratch.folder}/", "") for text in texts)
        stack = read_stack(process.task.stacks, scratch.tree, scratch.folder)
        ranks.append(RankTrace(process.task.rank, events, process.status, output, errors, stack))
    return RunTrace(run.name, ranks, run.ended, run.seconds, _files(scratch, before, names))


def _named(event: Event, scratch: Scratch, names: OriginalNames) -> Event:
    if event["e"] in ("write", "rename", "save"):
        for key in ("f", "to"):
            if event.get(key):
                event[key] = names.of(event[key])
    elif event["e"] == "line":
        event["x"] = names.within(event["x"])
    elif event["e"] == "error":
        event["message"] = event["message"].replace(f"{scratch.folder}/", "")
    return event


def _files(scratch: Scratch, before: dict[str, FileState], names: OriginalNames) -> dict[str, FileSeen]:
    found = {}
    for name, state in snapshot(scratch).items():
        if before.get(name) != state:
            path = scratch.folder / name
            small = state.size <= _HASHED
            text = None
            if path.suffix.lower() in _TEXTS and state.size <= _LONGEST_TEXT:
                text = names.within(path.read_text(errors="replace"))
            arrays = _arrays(path) if small and path.suffix in (".npy", ".npz") else None
            found[names.relative(name)] = FileSeen(state.size, hash_of(path) if small else "", text, arrays)
    return found


def _arrays(path: Path) -> dict[str, Any] | None:
    """What numpy has saved, by name; nothing when it holds python objects."""
    import numpy

    try:
        held = numpy.load(path, allow_pickle=False)
        return {"": held} if path.suffix == ".npy" else dict(held)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
