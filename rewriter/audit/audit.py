"""One program -> what is wrong with it on several processes: a pure function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import libcst as cst

from ..analysis.dataflow.solver import TooComplex
from ..analysis.dataflow.values import Unit
from ..config import Config
from ..deep_stack import deep_stack
from ..editing.diagnosed import Located, diagnosis_of
from ..editing.positions import locate, start
from ..editing.suppressions import skips
from ..facts.module_paths import ModulePaths
from ..findings import Finding, Severity
from ..pipeline import module_of
from ..result import Diagnosis, FileResult, Result, without_repeats
from ..source import Source
from .catalogue import RULES
from .ids import IDS
from .program import AuditedProgram
from .single import on_one_process


@deep_stack
def audit(
    sources: Sequence[Source],
    config: Config,
    layout: ModulePaths,
    each: Mapping[Path, Config] | None = None,
    *,
    notebook: bool = False,
    taken_off_elsewhere: Collection[str] = (),
    parse: Callable[[Source], tuple[cst.Module, str]] = module_of,
) -> Result | None:
    """
    Report what is wrong with a program: its entry script first, with the modules that it imports; None if it is not
    distributed. The code of a ``notebook`` is only checked if a cell starts processes. Other files take
    ``taken_off_elsewhere`` off the names of weights: prefixes that begin with a wrapper's. ``parse`` remembers trees.

    Raises ``SourceError`` for a file that is not valid Python.
    """
    if sources and skips(sources[0].text).whole:
        return None
    try:
        trees = {name: parse(source)[0] for name, source in zip(layout.places, sources, strict=True)}
        program = AuditedProgram(
            list(trees.items()), config.assume, layout, notebook=notebook, taken_off_elsewhere=taken_off_elsewhere
        )
        if not program.dialects:
            return None
        found = [(unit, finding) for rule in RULES for unit, finding in rule.body(program)]
        found = [(unit, f) for unit, f in found if not program.is_single(unit)]
        found = [(unit, f) for unit, f in found if f.node is None or _matters(program, unit, f.node)]
    except RecursionError:
        return _given_up(sources, "the program nests too deeply to be followed")
    except TooComplex:
        return _given_up(sources, "the program has more values than the analysis can follow")
    files = []
    for source, (name, tree) in zip(sources, trees.items(), strict=True):
        settings = (each or {}).get(source.path, config)
        mine = [finding for unit, finding in found if unit.name == name and _enables(settings, finding.id)]
        files.append(_told(source, tree, mine))
    return Result(tuple(files), len(files))


def _matters(program: AuditedProgram, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether several processes may come to a node, as far as constants and checks of the script say."""
    return not on_one_process(program, unit, node) and not program.constants.never(unit, node)


def _told(source: Source, tree: cst.Module, findings: Sequence[Finding]) -> FileResult:
    """The findings of one file with their places, without those that a comment suppresses."""
    if not findings:
        return FileResult(source, source.data)
    skipped, starts = skips(source.text), locate(tree)[1]
    file = Located(source, tree, starts)
    told = without_repeats(
        diagnosis_of(finding, file)
        for finding in findings
        if not skipped.covers(start(starts, finding.node)[0], finding.id)
    )
    return FileResult(source, source.data, diagnoses=tuple(sorted(told, key=lambda d: (d.line, d.column, d.id))))


def _enables(settings: Config, id: str) -> bool:
    """Whether a rule is reported. A selection that names no rule of the audit only selects rules of the migration."""
    chosen = settings.select is not None and any(id in IDS for id in settings.select)
    return id not in settings.ignore and (not chosen or settings.enables(id))


def _note(cause: str) -> Diagnosis:
    return Diagnosis("not-followed", Severity.NOTE, f"{cause}: nothing in it was checked", "")


def _given_up(sources: Sequence[Source], cause: str) -> Result:
    files = tuple(FileResult(s, s.data, diagnoses=(_note(cause),) if s is sources[0] else ()) for s in sources)
    return Result(files, len(files))
