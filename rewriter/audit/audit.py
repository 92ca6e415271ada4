"""One program -> what is wrong with it on several processes: a pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import libcst as cst

from ..analysis.dataflow.solver import TooComplex
from ..config import Config
from ..editing.positions import Starts, start
from ..editing.suppressions import skips
from ..facts.module_paths import ModulePaths
from ..findings import Finding, Severity
from ..pipeline import Tree, parse
from ..result import Diagnosis, FileResult, Result
from ..source import Source
from .catalogue import RULES
from .program import AuditedProgram


def audit(
    sources: Sequence[Source], config: Config, layout: ModulePaths, each: Mapping[Path, Config] | None = None
) -> Result | None:
    """
    Say what is wrong with a program: its entry script first, with the modules that it imports; None for one that is
    not distributed.

    Raises ``SourceError`` for a file that is not valid Python.
    """
    if sources and skips(sources[0].text).whole:
        return None
    try:
        parsed = {source: tree for source in sources if (tree := parse(source)) is not None}
        names = dict(zip(sources, layout.places, strict=True))
        trees: dict[str, tuple[Source, Tree]] = {names[s]: (s, t) for s, t in parsed.items()}
        program = AuditedProgram([(name, tree.module) for name, (_, tree) in trees.items()], config.assume, layout)
        if not program.dialects:
            return None
        found = [(unit, finding) for rule in RULES for unit, finding in rule.body(program)]
    except RecursionError:
        return _given_up(sources, "the program nests too deeply to be followed")
    except TooComplex:
        return _given_up(sources, "the program has more values than the analysis can follow")
    files = []
    for source in sources:
        settings = (each or {}).get(source.path, config)
        if source not in parsed:
            files.append(FileResult(source, source.data, diagnoses=(_note("the parser does not reproduce this file"),)))
            continue
        mine = [f for unit, f in found if trees[unit.name][0] is source and _enables(settings, f.id)]
        files.append(_told(source, parsed[source], mine))
    return Result(tuple(files), len(files))


def _told(source: Source, tree: Tree, findings: Sequence[Finding]) -> FileResult:
    """The findings of one file with their places, less those that a comment does not want."""
    skipped = skips(source.text)
    told = {
        _diagnosis(finding, tree.starts): None
        for finding in findings
        if not skipped.covers(_line(tree.starts, finding.node), finding.id)
    }
    return FileResult(source, source.data, diagnoses=tuple(sorted(told, key=lambda d: (d.line, d.column, d.id))))


def _enables(settings: Config, id: str) -> bool:
    """Whether a rule is to be told: a selection that names no rule of the audit selects rules of the migration."""
    chosen = settings.select is not None and any(rule.id in settings.select for rule in RULES)
    return id not in settings.ignore and (not chosen or settings.enables(id))


def _line(starts: Starts, node: cst.CSTNode | None) -> int:
    return start(starts, node)[0]


def _diagnosis(finding: Finding, starts: Starts) -> Diagnosis:
    line, column = start(starts, finding.node)
    return Diagnosis(finding.id, finding.severity, finding.message, finding.remedy, line, column)


def _note(cause: str) -> Diagnosis:
    return Diagnosis("not-followed", Severity.NOTE, f"{cause}: nothing in it was checked", "")


def _given_up(sources: Sequence[Source], cause: str) -> Result:
    files = tuple(FileResult(s, s.data, diagnoses=(_note(cause),) if s is sources[0] else ()) for s in sources)
    return Result(files, len(files))
