"""The audit of the programs of one command: the gate, the distributed programs, and what is wrong with each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..config import RawConfig, check_rules
from ..findings import Severity
from ..result import Diagnosis, FileResult
from ..source import SourceError
from .entry_points import layout_of
from .import_graph import Program, absolute
from .scan import Surveyor

_DISTRIBUTED = re.compile(
    rb"torch\.distributed|torch import distributed|DistributedDataParallel|\baccelerate\b|torchlift\.runtime|[Ff]abric"
    rb"|horovod|deepspeed"
)
"""The audit only looks at programs whose bytes contain one of these."""


class Auditor(Surveyor):
    """Looks at the distributed programs of a command."""

    def __init__(self, ids: Sequence[str], options: RawConfig) -> None:
        """``ids`` are the ids of all rules that settings may name, the audit's and the migration's."""
        self._ids = tuple(ids)
        super().__init__((), options)

    def _passes(self, path: Path) -> bool:
        """Also a file that distributes: its backward pass may be in a library."""
        return super()._passes(path) or _DISTRIBUTED.search(self.library.data(path)) is not None

    def _check(self, raw: RawConfig) -> None:
        if any(raw is other for other in self._sound):
            return
        check_rules(raw, self._ids)
        self._sound.append(raw)

    def _settle(self, programs: Sequence[Program], *, silent: bool = False) -> None:
        """Audit programs. A file that they share is reported once, with the findings of all of them."""
        told: dict[Path, FileResult] = {}
        working = [p for p in programs if any(_DISTRIBUTED.search(file.data) for file in p.files)]
        inside = {path for program in programs for path in program.paths}
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

        try:
            notebook, sources, each = self._read(program)
            result = audit(sources, each[program.entry], layout_of(program, {}), each, notebook=notebook is not None)
        except SourceError as error:
            self._refuse(error)
            return ()
        if result is None:
            return ()
        self.survey.audited += 1
        if notebook is None:
            return result.files
        from ..notebooks.document import file_of

        return (result.files[0]._replace(source=file_of(notebook), after=notebook.data), *result.files[1:])


def _joined(one: FileResult, other: FileResult) -> FileResult:
    """The findings of two programs for a file that both have, joined."""
    both: dict[Diagnosis, None] = dict.fromkeys((*one.diagnoses, *other.diagnoses))
    return one._replace(diagnoses=tuple(sorted(both, key=lambda d: (d.line, d.column, d.id))))


def wrong(files: Sequence[FileResult]) -> bool:
    """Whether something is wrong with one of some files."""
    return any(d.severity is Severity.ERROR for file in files for d in file.diagnoses)
