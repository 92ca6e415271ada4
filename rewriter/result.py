"""
The result of a migration as plain data: the input of every report.

Nothing here refers to a syntax tree; lines and columns are those of the original text, counted from 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from .findings import Severity
from .source import BOM, Source

if TYPE_CHECKING:
    from pathlib import Path


class Change(NamedTuple):
    """One edit that was made: which rule, where in the original, and why."""

    rule: str
    line: int
    column: int
    reason: str
    severity: Severity = Severity.NOTE
    """``NOTE`` for a safe edit, ``REVIEW`` for one that should be checked."""
    group: str = ""
    """The name of the group: edits of one group are made together or not at all; see ``pipeline.Plan``."""
    offset: int = 0
    """Its text is so many lines from there: that of an insertion is above a statement with its comments, or below."""


class CausePlace(NamedTuple):
    """Where it comes from what a finding is about: a second place, perhaps in another file."""

    label: str
    line: int
    column: int
    end: int
    """The column after its last character on that line; 0 if it is not known."""
    text: str
    """The line itself."""
    path: str = ""
    """The file; empty for the one that the finding is about."""


class Diagnosis(NamedTuple):
    """A finding with its place. ``line`` 0 means the file as a whole."""

    id: str
    severity: Severity
    message: str
    remedy: str
    line: int = 0
    column: int = 0
    end: int = 0
    """The column after the last character on that line; 0 if it is not known."""
    cause: CausePlace | None = None
    case: str = ""
    """As in ``Finding``."""


def without_repeats(found: Iterable[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Some findings, each once: two programs may name different causes of one."""
    return tuple({diagnosis._replace(end=0, cause=None): diagnosis for diagnosis in reversed(list(found))}.values())[
        ::-1
    ]


class RoleReport(NamedTuple):
    """One line of ``--roles``: the role of a name, and the evidence for it."""

    name: str
    scope: str
    """Qualified name of the enclosing function, ``<module>`` at module level."""
    role: str
    because: str
    line: int


class BehaviourReport(NamedTuple):
    """One line of ``--roles`` about the code: a loop, a statement, whether a value is equal on all processes, or what
    each of them holds of it."""

    name: str
    scope: str
    kind: str
    """``training step``, ``micro-step``, ``epoch loop``, ``evaluation loop``, ``together``, ``equal``, ``local``, or
    one of ``facts.module.LAYOUTS``."""
    because: str
    line: int


class Trait(NamedTuple):
    """Something in the script that is different by nature on several processes."""

    kind: str
    """``statistics`` of a batch, ``noise`` of a layer, random ``transforms``, the ``length`` of a loader; ``batch``:
    what the script's batch size is on several processes."""
    name: str
    """Its name in the script: ``BatchNorm2d``, or the loader; of ``batch``: ``process`` or ``global``."""
    line: int


class FileResult(NamedTuple):
    """The outcome for one file. ``after`` equals ``source.data`` if nothing changes."""

    source: Source
    after: bytes
    changes: tuple[Change, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    roles: tuple[RoleReport, ...] = ()
    traits: tuple[Trait, ...] = ()
    idle: tuple[int, ...] = ()
    """The first lines of the functions that the program does not run, and of what starts a module (``if __name__ ==``):
    another program may change these."""
    behaviour: tuple[BehaviourReport, ...] = ()

    @property
    def texts(self) -> tuple[str, str]:
        """The two texts in readable form; of a notebook its cells, one after the other."""
        if self.source.notebook is not None:
            return self.source.notebook.read(self.source.data), self.source.notebook.read(self.after)
        skipped, codec = len(BOM) if self.source.bom else 0, self.source.encoding
        before, after = (data[skipped:].decode(codec, "replace") for data in (self.source.data, self.after))
        return before, after

    def at(self, line: int) -> str:
        """Return the place as the suffix of a file's name: ``:12``, for a notebook ``:cell 3, line 2``."""
        if self.source.notebook is not None:
            cell, line = self.source.notebook.place(line)
            return f":{self.source.notebook.named(cell)}, line {line}" if cell else ""
        return f":{line}" if line else ""

    def line_of_file(self, line: int) -> int:
        """Return the line of the file that holds a line of ``source.text``; the two differ only for a notebook."""
        notebook = self.source.notebook
        return line if notebook is None else notebook.line_of_file(line)

    @property
    def changed(self) -> bool:
        """Whether the migrated text differs from the original."""
        return self.after != self.source.data

    @property
    def blocked(self) -> bool:
        """Whether a blocked finding prevents writing this file."""
        return any(d.severity is Severity.BLOCKED for d in self.diagnoses)


class Result(NamedTuple):
    """The outcome of one run of ``migrate``, files in the order in which they were given."""

    files: tuple[FileResult, ...] = ()
    checked: int = 0
    """Number of files looked at, including those that need no change."""
    options: Mapping[str, str] = MappingProxyType({})
    """The options that reports repeat: ``target``, ``mixed_precision``, ``batch`` (``process`` or ``global``),
    ``strategy`` if it is not ``ddp``."""
    audited: int | None = None
    """For ``--audit``: how many distributed programs were looked at."""
    programs: Mapping[Path, tuple[int, ...]] = MappingProxyType({})
    """The numbers of the programs that a file is part of, where there are several."""

    @property
    def changed(self) -> tuple[FileResult, ...]:
        """The files whose text would change."""
        return tuple(f for f in self.files if f.changed)

    @property
    def blocked(self) -> bool:
        """Whether any file is blocked."""
        return any(f.blocked for f in self.files)
