"""The audit of the programs of one command: the gate, the distributed programs, and what is wrong with each."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import RawConfig, check_rules
from ..findings import Severity
from ..gate.prefilter import parse, trains
from ..result import FileResult, without_repeats
from ..source import Source, SourceError
from .entry_points import layout_of
from .import_graph import Program, absolute
from .scan import Surveyor

if TYPE_CHECKING:
    import libcst as cst

_DISTRIBUTED = re.compile(
    rb"torch\.distributed|torch import distributed|DistributedDataParallel|\baccelerate\b|torchlift\.runtime|[Ff]abric"
    rb"|horovod|deepspeed"
)
"""The audit only looks at programs whose bytes contain one of these."""
_TAKEN_OFF = re.compile(
    rb"""(?:replace|startswith|removeprefix|strip|split|sub|len)\(\s*r?["']\^?(module\.[\w.]*)["']"""
)
"""A prefix that begins with a wrapper's, where it is taken off names."""


class Auditor(Surveyor):
    """Looks at the distributed programs of a command."""

    def __init__(self, ids: Sequence[str], options: RawConfig) -> None:
        """``ids`` are the ids of all rules that settings may name, the audit's and the migration's."""
        self._ids = tuple(ids)
        self._parse: Callable[[Source], tuple[cst.Module, str]] | None = None
        """Gives the tree of a file; modules that programs share are read once."""
        self._taken_off: set[str] = set()
        super().__init__((), options)

    def _passes(self, path: Path) -> bool:
        """Also a file that distributes: its backward pass may be in a library."""
        return super()._passes(path) or _DISTRIBUTED.search(self.library.data(path)) is not None

    def _is_idle(self, program: Program) -> bool:
        """
        Whether its entry only defines and configures: nobody starts it, and there are hundreds of such files.

        It has no code of its own that trains or distributes, and calls nothing but to give the result a name.
        """
        path, data = program.entry, self._bytes(program.entry)
        if path.suffix != ".py" or trains(data) or _DISTRIBUTED.search(data) is not None:
            return False
        try:
            return not any(map(_runs, parse(data).body))
        except (SyntaxError, ValueError, RecursionError):
            return False

    def _bytes(self, path: Path) -> bytes:
        """Of a file; none where it cannot be read, which has been said."""
        try:
            return self.library.data(path)
        except SourceError:
            return b""

    def _check(self, raw: RawConfig) -> None:
        if any(raw is other for other in self._sound):
            return
        check_rules(raw, self._ids)
        self._sound.append(raw)

    def _settle(self, programs: Sequence[Program], *, silent: bool = False) -> None:
        """Audit programs. A file that they share is reported once, with the findings of all of them."""
        told: dict[Path, FileResult] = {}
        working = [p for p in programs if any(_DISTRIBUTED.search(f.data) for f in p.files) and not self._is_idle(p)]
        inside = {path for program in programs for path in program.paths}
        self._taken_off = {found.decode() for path in self._judged for found in _TAKEN_OFF.findall(self._bytes(path))}
        for number, program in enumerate(working):
            self._progress(number, len(working))
            for file in self._audited(program):
                path = absolute(file.source.path)
                known = told.get(path)
                told[path] = file if known is None else _joined(known, file)
        self._progress(len(working), len(working))
        self.survey.files.extend(told.values())
        self.survey.checked += len({absolute(path) for path in inside} - self._judged)

    def _audited(self, program: Program) -> tuple[FileResult, ...]:
        from ..audit.audit import audit
        from ..pipeline import module_of

        self._parse = self._parse or cache(module_of)
        try:
            notebook, sources, each = self._read(program)
            result = audit(
                sources,
                each[program.entry],
                layout_of(program, {}),
                each,
                notebook=notebook is not None,
                taken_off_elsewhere=self._taken_off,
                parse=self._parse,
            )
        except SourceError as error:
            self._refuse(error)
            return ()
        if result is None:
            return ()
        files = result.files
        if notebook is not None:
            from ..notebooks.document import file_of

            files = (files[0]._replace(source=file_of(notebook), after=notebook.data), *files[1:])
        self.survey.audited.append([file.source.path for file in files])
        return files


def _runs(statement: ast.stmt) -> bool:
    """Whether a statement of a module does more than to define, to import and to assign."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    if isinstance(statement, (ast.For, ast.While)):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, (ast.Call, ast.Await))
    return any(_runs(child) for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt))


def _joined(one: FileResult, other: FileResult) -> FileResult:
    """The findings of two programs for a file that both have, joined."""
    both = without_repeats((*one.diagnoses, *other.diagnoses))
    return one._replace(diagnoses=tuple(sorted(both, key=lambda d: (d.line, d.column, d.id))))


def wrong(files: Sequence[FileResult]) -> bool:
    """Whether something is wrong with one of some files."""
    return any(d.severity is Severity.ERROR for file in files for d in file.diagnoses)
