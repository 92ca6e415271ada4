"""Program -> facts -> ask the rules -> apply -> check: one pure function for each stage."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import libcst as cst

from .analysis.dataflow.solver import TooComplex
from .analysis.diagnostics.nature import nature
from .config import Config, Strategy
from .deep_stack import deep_stack
from .editing import imports
from .editing.accelerator_name import imported, spell
from .editing.apply import apply
from .editing.diagnosed import Located, diagnoses_of
from .editing.edits import AddImport, Edit, EditGroup
from .editing.indentation import Evened, evened, uneven
from .editing.left_out import RuleEdits, left_out
from .editing.leftovers import Written, tidied
from .editing.positions import Starts, code, locate, offset, start
from .editing.suppressions import skips
from .editing.unread_options import with_unread_options
from .facts.module_paths import ENTRY, ModulePaths, Place
from .findings import Finding, Severity
from .planning.program_facts import ParsedModule, Understood, understand
from .planning.remedies import followable
from .result import BehaviourReport, Change, Diagnosis, FileResult, Result, RoleReport, Trait
from .rule import Entry
from .source import Source, SourceError, encode, invalid, rejection, too_new
from .validation.diagnoses import Emitted, diagnoses
from .wording import worded


def migrate(
    sources: Sequence[Source],
    catalogue: Sequence[Entry],
    config: Config,
    layout: ModulePaths | None = None,
    each: Mapping[Path, Config] | None = None,
) -> Result:
    """
    Migrate one program: its first source is the entry script, the others are the modules that it imports.

    ``layout`` says how the modules find each other, with a place for each source, in order; ``each`` has the settings
    of files that have their own. Raises ``SourceError`` for a file that is not valid Python.
    """
    return plan(sources, catalogue, config, layout, each).result()


@deep_stack
def plan(
    sources: Sequence[Source],
    catalogue: Sequence[Entry],
    config: Config,
    layout: ModulePaths | None = None,
    each: Mapping[Path, Config] | None = None,
) -> Plan:
    """Analyse a program and ask the rules; the plan can then be applied more than once, with different groups."""
    if sources and skips(sources[0].text).whole:
        return Plan(tuple(FileResult(source, source.data) for source in sources), config)
    if layout is None:
        layout = ModulePaths({name: Place(name) for name in (ENTRY, *(source.path.stem for source in sources[1:]))})
    try:
        trees = {source.path: tree for source in sources if (tree := parse(source)) is not None}
        names = dict(zip((source.path for source in sources), layout.places, strict=True))
        modules = [ParsedModule(names[path], tree.module) for path, tree in trees.items()]
        understood = dict(zip(trees, understand(modules, config, layout), strict=True))
        solved = next((known.solved for known in understood.values() if known.solved is not None), None)
        layout = solved.layout if solved is not None else layout
        files = tuple(
            _answered(source, trees[source.path], understood[source.path], catalogue, (each or {}).get(path, config))
            if (path := source.path) in trees
            else FileResult(source, source.data, diagnoses=(_unread(),))
            for source in sources
        )
        files = _with_left_out(files, config)
    except RecursionError:
        files = tuple(_too_deep(source) for source in sources)
    except TooComplex:
        files = tuple(_too_complex(source) for source in sources)
    asked = all((each or {}).get(source.path, config).enables(e.id) for source in sources for e in catalogue)
    return Plan(files, config, layout, asked)


class Answered(NamedTuple):
    """One file, and the edits and findings of the rules for it."""

    source: Source
    parsed: Tree
    known: Understood
    edits: tuple[Edit, ...]
    findings: tuple[Finding, ...]
    left_out: tuple[Edit, ...] = ()
    """The edits of rules that are not to run."""

    @property
    def located(self) -> Located:
        """The file with the places of its nodes."""
        return Located(self.source, self.parsed.module, self.parsed.starts)


class Plan(NamedTuple):
    """
    The migration of one program, not applied yet.

    Its edits form groups, named in ``Change.group``. A group is made as a whole or not at all: ``training`` is what
    makes the training distributed, and everything else needs it; ``files`` is what writes files and waits for them;
    any other edit is a group of its own.
    """

    files: tuple[Answered | FileResult, ...]
    config: Config
    layout: ModulePaths = ModulePaths()
    whole: bool = False
    """All rules were enabled, so the emitted program must be complete."""

    @deep_stack
    def result(self, declined: Collection[str] = ()) -> Result:
        """Apply the edits, without the groups that the user declined."""
        try:
            done = self._migrated(declined)
        except RecursionError:
            done = tuple(_too_deep(file.source) for file in self.files)
        if self.whole and not declined:
            done = self._checked(done)
        if any(file.blocked for file in done) and not self.config.partial:
            done = tuple(file._replace(after=file.source.data, changes=(), traits=()) for file in done)
        else:
            done = _with_batches(done, self.config)
        return Result(with_unread_options(done), len(done), _options(self.config))

    def _migrated(self, declined: Collection[str]) -> tuple[FileResult, ...]:
        """The files with their edits, and without what those leave unused."""
        located = [file.located for file in self.files if isinstance(file, Answered)]
        edited = [_edited(file, declined, self.config) for file in self.files if isinstance(file, Answered)]
        places = dict(zip((file.source for file in self.files), self.layout.places.values(), strict=False))
        trees = tidied([each.written(places.get(each.file.source)) for each in edited])
        finished = iter([_finished(*pair, self.config, located) for pair in zip(edited, trees, strict=True)])
        return tuple(file if isinstance(file, FileResult) else next(finished) for file in self.files)

    def _checked(self, done: tuple[FileResult, ...]) -> tuple[FileResult, ...]:
        """The files with the findings of the check of the emitted program; a refused program has nothing to check."""
        if any(file.blocked for file in done) or not any(file.changes for file in done):
            return done
        places = zip(self.layout.places, self.files, done, strict=True)
        named = [(name, file.parsed.module, after) for name, file, after in places if isinstance(file, Answered)]
        modules = [
            Emitted(name, tree, after.texts[1] if after.changed else None, after.diagnoses, after.traits)
            for name, tree, after in named
        ]
        solved = next((file.known.solved for file in self.files if isinstance(file, Answered)), None)
        assume, partial = self.config.assume, self.config.partial
        found = diagnoses(modules, assume, self.layout, written=partial, original=solved)
        said = {after.source.path: found[name] for name, _, after in named if name in found}
        return tuple(
            file._replace(
                diagnoses=tuple(sorted((*file.diagnoses, *more.diagnoses), key=lambda d: (d.line, d.column))),
                traits=(*file.traits, *more.traits),
            )
            if (more := said.get(file.source.path))
            else file
            for file in done
        )


def _with_batches(done: tuple[FileResult, ...], config: Config) -> tuple[FileResult, ...]:
    """The files of a program with what becomes of its batches, and without the traits that this leaves untrue."""
    by_hand = any(trait.kind == "by-hand" for file in done for trait in file.traits)
    sharded = config.keep_global_batch or any(
        d.id == "sharded-batch" and d.case == "by-hand" for file in done for d in file.diagnoses
    )
    untrue = _OF_LENGTH if sharded else ()
    gone: tuple[str, ...] = ("statistics", "length", "early-length") if by_hand else untrue
    done = tuple(file._replace(traits=tuple(t for t in file.traits if t.kind not in gone)) for file in done)
    trains = [file for file in done if any(change.rule in ("backward", "prepare") for change in file.changes)]
    if not trains or by_hand:
        return done
    batch = Trait("batch", "global" if sharded else "process", 0)
    return tuple(f._replace(traits=(batch, *f.traits)) if f is trains[0] else f for f in done)


_OF_LENGTH = ("length", "early-length", "steps", "cadence", "long-cadence", "interval", "limit", "rate")
"""Traits of a script whose loaders are N times shorter on N processes."""


class Tree(NamedTuple):
    """A parsed file, and where its nodes start."""

    module: cst.Module
    starts: Starts
    tail: str = ""
    """What follows the last line, which the parser would drop or double."""
    evened: Evened | None = None
    """Its text, where that is read with other indentation than it is written."""

    def written(self, text: str) -> str:
        """An edited form of the text as it is written."""
        return self.evened.back(text) if self.evened is not None else text


def parse(source: Source) -> Tree | None:
    """The tree of a source; None if it does not produce the same text again. ``SourceError`` for invalid Python."""
    module, whole, evened = _read(source)
    read = evened.text if evened is not None else source.text
    for tree, body in chain([(module, whole)], _shorter(whole)):
        text, starts = locate(tree)
        if text == body:
            starts = starts.narrowed(evened.wider) if evened is not None else starts
            return Tree(tree, starts, read[len(body) :], evened)
    return None


@deep_stack
def module_of(source: Source) -> tuple[cst.Module, str]:
    """The tree of a source, and its text without whitespace after the last line."""
    return _read(source)[:2]


def _read(source: Source) -> tuple[cst.Module, str, Evened | None]:
    """The tree of a source, the text that it is made of, and how that differs from the source's own."""
    try:
        return *_module(source.text), None
    except cst.ParserSyntaxError as error:
        other = evened(source.text)
        if other is not None:
            with suppress(cst.ParserSyntaxError):
                return *_module(other.text), other
        raise _unreadable(source, error) from None


def _module(text: str) -> tuple[cst.Module, str]:
    body = text.rstrip(" \t\f")
    body = body if not body or body.endswith(("\n", "\r")) else text
    return cst.parse_module(body), body


_LINE_END = re.compile(r"(\r\n|\r|\n)")


def _shorter(body: str) -> Iterator[tuple[cst.Module, str]]:
    """The trees of a text without what follows its code: with the end of the last line, and without it. LibCST loses a
    blank line before one of whitespace there, or before an indented comment, and a lone carriage return."""
    parts = _LINE_END.split(body)  # a line, its end, the next line, ...
    while len(parts) > 1 and parts[-1].lstrip(" \t\f")[:1] in ("", "#"):
        ending = parts[-2]
        del parts[-2:]
        if parts[-1].lstrip(" \t\f")[:1] not in ("", "#"):
            lines = "".join(parts)
            for shorter in (lines + ending, lines):
                with suppress(cst.ParserSyntaxError):
                    yield cst.parse_module(shorter), shorter


def _unreadable(source: Source, error: cst.ParserSyntaxError) -> SourceError:
    """Python's own message for the error, which people know; what LibCST does not read of a text that Python takes."""
    try:
        ast.parse(source.text)
    except SyntaxError as own:
        return invalid(source.path, own.lineno or error.raw_line, own.msg, own)
    except ValueError as own:
        line, cause = error.raw_line, str(own)
    else:
        if line := uneven(source.text):
            cause = "Python reads the tabs and spaces before this line, the parser of this tool does not: the block "
            cause += "around it is indented in another way"
            return SourceError(source.path, line, cause, "Indent by spaces alone (expand -i -t 8), then migrate")
        cause = f"Python reads this file, the parser of this tool does not: {error.message.partition(chr(10))[0]}"
        return SourceError(source.path, error.raw_line, cause, "Write that line in another way, then migrate")
    return invalid(source.path, line, cause)


def _options(config: Config) -> dict[str, str]:
    return {
        "target": config.target.value,
        "mixed_precision": config.mixed_precision or "",
        "batch": "global" if config.keep_global_batch else "process",
        **({} if config.strategy is Strategy.DDP else {"strategy": config.strategy.value}),
        **({"device": config.device} if config.device else {}),
    }


def _answered(source: Source, parsed: Tree, known: Understood, catalogue: Sequence[Entry], config: Config) -> Answered:
    answers = [answer for e in catalogue if config.enables(e.id) for answer in e.load()(known.facts)]
    others = (answer for e in catalogue if not config.enables(e.id) for answer in e.load()(known.facts))
    names, facts = known.names, known.facts
    edits = tuple(spell(answer, names, facts) for answer in answers if isinstance(answer, Edit))
    edits += tuple(imported(edits, names, facts))
    findings = (*map(worded, facts.findings), *(answer for answer in answers if isinstance(answer, Finding)))
    findings = tuple(followable(finding, facts) for finding in findings)
    left = tuple(answer for answer in others if isinstance(answer, Edit))
    return _without_skipped(Answered(source, parsed, known, edits, findings, left))


def _with_left_out(files: tuple[Answered | FileResult, ...], config: Config) -> tuple[Answered | FileResult, ...]:
    """The files with a finding for each edit that a rule would make which is not to run, and which the others need."""
    of_files = {n: RuleEdits(f.edits, f.left_out) for n, f in enumerate(files) if isinstance(f, Answered)}
    found = left_out(of_files, config) if any(one.not_made for one in of_files.values()) else {}
    return tuple(
        file._replace(findings=(*file.findings, *found[n])) if isinstance(file, Answered) and n in found else file
        for n, file in enumerate(files)
    )


def _without_skipped(file: Answered) -> Answered:
    """
    Leave out the edits and findings that comments in the file suppress.

    A finding that blocks a file is only suppressed by its id. A suppressed edit that the training needs leaves a
    finding, which blocks the file if the comment applies to the whole file: the program would be half migrated.
    """
    skipped = skips(file.source.text)
    if not skipped.lines and not skipped.file:
        return file

    def line(node: cst.CSTNode | None) -> int:
        return start(file.parsed.starts, node)[0] if node is not None else 0

    findings = []
    for finding in file.findings:
        named = skipped.names(line(finding.node), finding.id)
        if not (named or (finding.severity is not Severity.BLOCKED and skipped.covers(line(finding.node), finding.id))):
            findings.append(finding)
        elif finding.severity is Severity.BLOCKED and not file.edits:
            findings.append(
                Finding(
                    "skipped",
                    finding.node,
                    f"a skip comment silences {finding.id}, and no other way to migrate this training is known: the "
                    "script is left as it is, on one device",
                    "no action needed if that is meant; without the comment migrate says what to change",
                    Severity.NOTE,
                    case="left-alone",
                )
            )
    edits = []
    for edit in file.edits:
        if not skipped.covers(line(edit.node), edit.rule):
            edits.append(edit)
        elif edit.unit is EditGroup.TRAINING and not isinstance(edit, AddImport):
            findings.append(
                Finding(
                    "skipped",
                    edit.node,
                    "a skip comment keeps this unchanged, but training on several processes needs the change "
                    f"({edit.reason})",
                    "remove the comment"
                    if skipped.whole
                    else "check that it is correct as it is, or remove the comment",
                    Severity.BLOCKED if skipped.whole else Severity.REVIEW,
                    case="needed",
                )
            )
    return file._replace(edits=tuple(edits), findings=tuple(findings))


class _Edited(NamedTuple):
    """A file with its edits made."""

    file: Answered
    tree: cst.Module
    made: list[Edit]
    findings: list[Finding]

    def written(self, place: Place | None) -> Written:
        """The file as what it leaves unused is looked for."""
        known = self.file.known
        outside = place is not None and (place.elsewhere or bool(place.shared))
        return Written(known.names, self.tree, bool(self.made), known.taken, outside)


def _edited(file: Answered, declined: Collection[str], config: Config) -> _Edited:
    findings = list(file.findings)
    taken = [edit for edit in file.edits if not _declines(declined, _group(edit, file))]
    rules = {edit.rule for edit in taken if not isinstance(edit, AddImport)}
    # an import is needed as long as one of its rule's edits is made, whichever of them it was grouped with
    edits = [edit for edit in file.edits if edit in taken or (isinstance(edit, AddImport) and edit.rule in rules)]
    if any(f.severity is Severity.BLOCKED for f in findings) and not config.partial:
        edits = []
    tree, made, conflicts = apply(file.parsed.module, file.known.names.parents, edits)
    return _Edited(file, tree, made, [*findings, *conflicts])


def _finished(edited: _Edited, tree: cst.Module, config: Config, program: Sequence[Located] = ()) -> FileResult:
    file, _, made, findings = edited
    source, starts = file.source, file.parsed.starts
    if made:
        read = {name.value for name in imports.names_in(tree)}
        made = [edit for edit in made if not isinstance(edit, AddImport) or edit.name in read]
        tree = imports.add(tree, [edit for edit in made if isinstance(edit, AddImport)])
    after = source.data
    if made and tree is not file.parsed.module:
        problem, after = _checked(source, file.parsed.written(code(tree) + file.parsed.tail))
        findings.extend(problem)
    if any(f.severity is Severity.BLOCKED for f in findings) and not config.partial:
        made, after = [], source.data
    return FileResult(
        source,
        after,
        changes=tuple(sorted((_change(e, file) for e in made), key=lambda c: (c.line, c.column))),
        diagnoses=diagnoses_of(findings, file.located, program),
        roles=tuple(
            RoleReport(r.name, r.scope, r.role.value, r.because, start(starts, r.node)[0])
            for r in file.known.facts.roles
        ),
        behaviour=tuple(
            sorted(
                (
                    BehaviourReport(b.name, b.scope, b.kind, b.because, start(starts, b.node)[0])
                    for b in file.known.facts.behaviour
                ),
                key=lambda told: told.line,
            )
        ),
        traits=tuple(Trait(kind, name, start(starts, node)[0]) for node, kind, name in _nature(file.known)),
        idle=tuple(start(starts, getattr(resting, "name", resting))[0] for resting in file.known.idle),
    )


def _nature(known: Understood) -> Iterator[tuple[cst.CSTNode, str, str]]:
    """What the script does differently on several processes, but for what runs only where a module that it imports is
    started by itself."""
    resting = {node for node in known.idle if isinstance(node, cst.If)}
    for node, kind, name in nature(known.names, known.facts, known.whole, known.unbuilt):
        if resting.isdisjoint(known.names.ancestors(node)):
            yield node, kind, name


def _group(edit: Edit, file: Answered) -> str:
    """The name of an edit's group; an import belongs to the first edit of its rule."""
    if edit.unit is not EditGroup.ALONE:
        unit: str = edit.unit.value
        return unit
    if isinstance(edit, AddImport):
        alike = (e for e in file.edits if e.rule == edit.rule and e.unit is edit.unit and not isinstance(e, AddImport))
        edit = next(alike, edit)
    line, column = start(file.parsed.starts, edit.node)
    return f"{edit.rule} {file.source.path}:{line}:{column}"


def _declines(declined: Collection[str], group: str) -> bool:
    """Whether a group is left out; without the training's edits, every group is."""
    return group in declined or EditGroup.TRAINING.value in declined


def _checked(source: Source, text: str) -> tuple[list[Finding], bytes]:
    """
    The new text, and a finding if it is not valid Python: that is a bug of ours, and the file is never written.

    Raises ``SourceError`` if this Python cannot parse the original either, which LibCST knows how to.
    """
    if (found := rejection(text)) is None:
        return [], encode(source, text)
    error, parsed = found
    own = rejection(source.text)
    if own is not None and not (parsed or own.parsed):
        raise too_new(source.path, own.error.lineno or 0, own.error.msg)
    if own is not None and parsed:
        return [], encode(source, text)
    cause = f"the migrated text would be invalid Python ({error.msg}, line {error.lineno})"
    remedy = "please report this, with the script"
    return [Finding("invalid-output", None, cause, remedy, Severity.BLOCKED)], source.data


def _change(edit: Edit, file: Answered) -> Change:
    line, column = start(file.parsed.starts, edit.node)
    return Change(
        edit.rule, line, column, edit.reason, edit.severity, _group(edit, file), offset(edit, file.parsed.module)
    )


def _unread() -> Diagnosis:
    return Diagnosis(
        "round-trip",
        Severity.BLOCKED,
        "the parser does not reproduce this file byte for byte, so the file is left unchanged",
        "remove unusual control characters or line endings",
    )


def _too_deep(source: Source) -> FileResult:
    return _given_up(source, "the file nests too deeply to be analysed", "split the deepest expression")


def _too_complex(source: Source) -> FileResult:
    remedy = "move code that does not train into separate modules"
    return _given_up(source, "the program has more values than the analysis can follow", remedy)


def _given_up(source: Source, cause: str, remedy: str) -> FileResult:
    return FileResult(source, source.data, diagnoses=(Diagnosis("too-deep", Severity.BLOCKED, cause, remedy),))
