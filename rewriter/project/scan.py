"""Run over the files of one command: gate, programs, migration. Returns data; prints and writes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Config, RawConfig, Target, check_rules, check_word, final, load
from ..facts.module_paths import ENTRY
from ..findings import Severity
from ..gate.prefilter import handed_on, helps, syntax_error, trains
from ..source import Source, SourceError, decode, discover, invalid
from .entry_points import Map, by_itself, layout_of
from .import_graph import File, Library, Program, absolute, follow, shortened
from .migrations import Given, Migrations

if TYPE_CHECKING:
    from ..notebooks.document import Notebook
    from ..result import FileResult, Result
    from ..rule import Entry

_MIGRATED = re.compile(rb"^\s*(from|import)\s+(torchlift|accelerate)\b", re.MULTILINE)
_ON_ACCELERATE = re.compile(rb"^\s*(from|import)\s+accelerate\b", re.MULTILINE)
_FEW = 20
"""Up to this many files on the command line, each one counts as a script that somebody starts."""

_PARSED = 1_000_000
"""So many bytes without training are parsed at most."""
_NAMED = 3
"""So many files are named in the counts."""


class Survey:
    """The results for the files of one command."""

    def __init__(self) -> None:
        self.files: list[FileResult] = []
        self.refused: list[SourceError] = []
        self.unparsed: list[SourceError] = []
        """Of the files without training those that are not valid Python."""
        self.checked = 0
        self.done = 0
        """How many files are migrated already."""
        self.unchanged = 0
        """How many other files train in a way that needs no change."""
        self.unstarted: dict[Path, None] = {}
        """Files that train, of scripts that are not seen to start that."""
        self.audited: list[list[Path]] = []
        """The files of each distributed program that was audited, the script first."""
        self.options: dict[str, str] = {}
        self.programs: list[Given] = []
        """The programs that were migrated, each with its settings."""

    def unread(self) -> str:
        """The files without training that are not valid Python, as a phrase."""
        named = ", ".join(f"{os.path.relpath(error.path)}:{error.line}" for error in self.unparsed[:_NAMED])
        named += " and others" if len(self.unparsed) > _NAMED else ""
        return f"{len(self.unparsed)} that {'is' if len(self.unparsed) == 1 else 'are'} not valid Python ({named})"

    def result(self) -> Result:
        """The outcome of the run."""
        from ..result import Result

        numbers: dict[Path, tuple[int, ...]] = {}
        for number, program in enumerate(self.programs):
            for source in program.sources:
                numbers[source.path] = (*numbers.get(source.path, ()), number)
        return Result(tuple(self.files), self.checked, self.options, programs=numbers)

    def __str__(self) -> str:
        """The counts, as a phrase."""
        known = self.done + self.unchanged + len(self.unstarted) + len(self.files)
        untouched = self.checked - known - len(self.unparsed)
        facts = [f"{self.done} migrated already"] if self.done else []
        facts += [f"{self.unchanged} that need{'s' if self.unchanged == 1 else ''} no change"] if self.unchanged else []
        if self.unstarted:
            named = ", ".join(os.path.relpath(path) for path in islice(self.unstarted, _NAMED))
            named += " and others" if len(self.unstarted) > _NAMED else ""
            facts += [f"{len(self.unstarted)} with training that nothing here is seen to start ({named})"]
        if self.unparsed:
            facts += [self.unread()]
        facts += [f"{untouched} without training by torch"] if untouched else []
        return f"{self.checked} file{'' if self.checked == 1 else 's'} checked, {', '.join(facts) or 'none left'}"


class Surveyor:
    """Looks at the files of a command, and at the programs that they belong to."""

    def __init__(
        self,
        catalogue: Sequence[Entry],
        options: RawConfig,
        *,
        every: bool = False,
        notes: bool = True,
        cached: bool = False,
    ) -> None:
        """
        Look with the rules of a catalogue, and the options of the command line.

        Args:
            every: also return results of programs that need no change, for users who ask what was inferred.
            notes: also return notes about programs that stay unchanged.
            cached: read and write the cache of verdicts.
        """
        self.catalogue = catalogue
        self.options = options
        self.every = every
        self.notes = notes
        self.survey = Survey()
        self.library = Library()
        self.migrations = Migrations(catalogue, self.library, cached=cached)
        self.map = Map(self.library, lambda path: self._raw(path).excludes(path))
        self._progress: Callable[[int, int], None] = lambda done, total: None
        self._trains: dict[Path, bool] = {}
        self._judged: set[Path] = set()
        """The files that were given or found, in full."""
        self._folders: dict[str, RawConfig] = {}
        self._sound: list[RawConfig] = []
        self._check(options)

    def look(
        self,
        paths: Sequence[Path],
        progress: Callable[[int, int], None] = lambda done, total: None,
        *,
        follows: bool = True,
        hook: bool = False,
    ) -> Survey:
        """
        Look at files and folders. A ``SourceError`` is recorded, and the other files are still looked at.

        Args:
            paths: scripts that somebody starts, and folders in which those are to be found.
            progress: called with the number of finished programs, and the number of all.
            follows: migrate programs, with the modules that they import; else each file by itself.
            hook: ``paths`` are changed files of any kind: migrate the programs of the project that reach them.
        """
        found, self.survey.refused = discover(paths, lambda path: self._raw(path).excludes(path))
        self._progress = progress
        alone = len(found) == 1 and found[0] == paths[0]
        readable = [path for path in found if self._gate(path, None, alone, hook)]
        if not follows:
            self._settle([self._alone(path) for path in readable if self._works(path)])
        elif hook:
            self._settle(self._reaching(readable), silent=True)
        else:
            given = set(paths)
            named = [path for path in readable if path in given]
            self._settle(self._started(readable, named if len(named) <= _FEW else []))
        if not hook and not alone:
            self._note_unparsed(readable)
        self.survey.checked -= len(self._judged & {absolute(error.path) for error in self.survey.refused})
        return self.survey

    def look_at(self, data: bytes, name: str) -> Survey:
        """Look at text that was not read from a file, under a given name."""
        path = Path(name)
        self.migrations.cached = False  # there is no file, so no place for its cache
        if self._gate(path, data, True) and self._works(path):
            self._settle([self._alone(path)])
        return self.survey

    # The gate ---------------------------------------------------------------------------------------------------------

    def _gate(self, path: Path, data: bytes | None, alone: bool, hook: bool = False) -> bool:
        """
        Judge one file; False where it cannot be read.

        A single file is always read in full: no message about a broken file would look like approval. So is one that
        trains, of a hook, because nothing is seen to start a broken file.
        """
        self.survey.checked += 1
        self._judged.add(absolute(path))
        try:
            if data is not None:
                self.library.give(path, data)
            if self._passes(path):
                _ = self.library.imports(path) if hook else ()
            elif alone:
                self._sound_file(path)
        except SourceError as error:
            self.survey.refused.append(error)
            return False
        return True

    def _note_unparsed(self, paths: Sequence[Path]) -> None:
        """Note the files without training that are not valid Python: nobody looked into them. Not in a large folder,
        where to parse all of them takes longer than to migrate the others."""
        others = [path for path in paths if path.suffix == ".py" and not self._works(path)]
        if sum(len(self.library.data(path)) for path in others) > _PARSED:
            return
        errors = (error for path in others if (error := self._error_of(path)) is not None)
        self.survey.unparsed += [error for error in errors if str(error) not in map(str, self.survey.refused)]

    def _error_of(self, path: Path) -> SourceError | None:
        """Why a file is not valid Python."""
        try:
            if b"import" in self.library.data(path):
                self.library.imports(path)
            else:
                _sound(path, self.library.data(path))
        except SourceError as error:
            return error
        return None

    def _sound_file(self, path: Path) -> None:
        data = self.library.data(path)
        notebook = self.library.notebooks.get(absolute(path))
        if notebook is not None:
            notebook.check()
        else:
            _sound(path, data)

    def _passes(self, path: Path) -> bool:
        """Whether a file trains, as far as the gate can tell; ``SourceError`` if it cannot be read."""
        if path not in self._trains:
            self._trains[path] = trains(self.library.data(path))
        return self._trains[path]

    def _works(self, path: Path) -> bool:
        """Whether the rules have to look at a file; False if it cannot be read."""
        try:
            return self._passes(path)
        except SourceError:
            return False

    def _helps(self, path: Path) -> bool:
        """Whether a file may hold the training step of a script, although only the script imports torch."""
        try:
            return not self._passes(path) and helps(self.library.data(path))
        except SourceError:
            return False

    # The programs -----------------------------------------------------------------------------------------------------

    def _alone(self, path: Path) -> Program:
        return Program([File(ENTRY, path, self.library.data(path), "")])

    def _started(self, found: Sequence[Path], named: Sequence[Path]) -> list[Program]:
        """The programs of the named scripts, and of the found files that start something."""
        working = [path for path in found if self._works(path)]
        entries = dict.fromkeys(named)
        if len(named) < len(found) and (sought := [*working, *(path for path in found if self._helps(path))]):
            entries.update(dict.fromkeys(self.map.entries(sought, found)))
        programs = [program for path in entries if (program := self._followed(path, named)) is not None]
        inner = {absolute(p) for program in programs for p in list(program.paths - {program.entry})}
        programs = [p for p in programs if absolute(p.entry) not in inner or self.map.has_guard(p.entry)]
        known = {absolute(path) for program in programs for path in program.paths}
        alone = [path for path in working if absolute(path) not in known]
        tests = [path for path in alone if path not in named and self.map.is_test(path)]  # a test runner starts them
        self.survey.unstarted.update(dict.fromkeys(map(absolute, tests)))
        return [*programs, *(self._alone(path) for path in alone if path not in tests)]

    def _reaching(self, changed: Sequence[Path]) -> list[Program]:
        """The programs of the project that reach one of some files."""
        projects = {id(files): files for files in map(self.map.extent, changed)}
        universe = list(dict.fromkeys(path for files in projects.values() for path in files))
        universe = [path for path in universe if not self._raw(path).excludes(path)]
        working = [path for path in universe if self._works(path) or self._helps(path)]
        wanted = {absolute(path) for path in changed}
        programs = [self._followed(shortened(path)) for path in self.map.entries(working, universe)] if working else []
        return [p for p in programs if p is not None and not wanted.isdisjoint(map(absolute, p.paths))]

    def _followed(self, entry: Path, named: Sequence[Path] = ()) -> Program | None:
        """The program of a script, if there is work in it. ``named``: the scripts of which it is said where work may be
        out of sight."""
        try:
            program = follow(self.library, entry)
        except SourceError as error:
            own = absolute(error.path) == absolute(entry)
            hidden = not own and b".backward(" in self.library.data(error.path)  # it may train, and cannot be looked at
            if own != self._works(entry) or hidden:  # an error in a script with work is reported when it is read
                self._refuse(error)
            return None
        if any(self._works(file.path) for file in program.files):
            return program
        if any(self._helps(f.path) for f in program.files) and any(
            b"import torch" in f.data or b"from torch" in f.data for f in program.files
        ):
            return program
        if entry in named and program.unfollowed:
            self._tell_unfollowed(program)
        elif entry in named:
            self._tell_unseen(entry, program)
        return None

    def _tell_unseen(self, entry: Path, program: Program) -> None:
        """Say of a script without a backward pass that a function which cannot be read gets its optimizer."""
        from ..facts.torch_api.loading import row
        from ..result import Diagnosis, FileResult

        data = self.library.data(entry)
        for full, optimizer, line in handed_on(data):
            module, _, name = full.rpartition(".")
            package = module.partition(".")[0]
            if row(full) is not None or any(file.name.partition(".")[0] == package for file in program.files):
                continue
            message = f"`{optimizer}` goes to {name} of {module}, which is not in this project, so it was not read"
            remedy = f"if {name} trains, put {package} beside this script, then migrate"
            source = decode(data, entry)
            told = Diagnosis("unseen-training", Severity.REVIEW, message, remedy, line, 1)
            self.survey.files.append(FileResult(source, source.data, diagnoses=(told,)))
            return

    def _tell_unfollowed(self, program: Program) -> None:
        """Say of a program without work that a module of a computed name, which may train, was not looked at."""
        from ..result import Diagnosis, FileResult

        for path in dict.fromkeys(each.path for each in program.unfollowed):
            data = self.library.data(path)
            source = decode(data, path)
            told = [
                Diagnosis(
                    "computed-import",
                    Severity.REVIEW,
                    f"`{each.text}`: which module this imports is known only when the script runs, so that module was "
                    "not read; nothing else of this script trains",
                    "if that module trains, write its name out here, then migrate",
                    each.line,
                    1,
                    case="not-read",
                )
                for each in program.unfollowed
                if each.path == path
            ]
            self.survey.files.append(FileResult(source, source.data, diagnoses=tuple(told)))

    def _refuse(self, error: SourceError) -> None:
        if all(str(error) != str(known) for known in self.survey.refused):
            self.survey.refused.append(error)

    # The migration ----------------------------------------------------------------------------------------------------

    def _settle(self, programs: Sequence[Program], *, silent: bool = False) -> None:
        """Migrate programs, so that shared files stay correct for each of them. ``silent``: do not report libraries."""
        if not programs:
            return
        from .reconcile import idle, merged

        inside = {path for program in programs for path in program.paths}
        started = {program.entry for program in programs}
        results: list[tuple[Program, Result | None]] = []
        for number, program in enumerate(programs):
            self._progress(number, len(programs))
            results.append((program, self._answer(program, inside, started)))
        self._progress(len(programs), len(programs))
        if also := self._started_as_well([(p, r) for p, r in results if r is not None], started):
            self._settle([*programs, *also], silent=silent)
            return
        resting = {p.entry for p, r in results if r is not None and idle(p, r, silent)}
        working = {path for program, _ in results if program.entry not in resting for path in program.paths}
        if working & {path for program, _ in results if program.entry in resting for path in program.paths}:
            results = [(p, self._answer(p, working, started - resting) if len(p.files) > 1 else r) for p, r in results]
        kept = [(p, r) for p, r in results if r is not None and (p.entry not in resting or self.every)]
        for _, result in kept:
            self.survey.options.update(result.options)
        self.survey.files.extend(merged(kept, self.map, every=self.every))
        self._count([(p, r) for p, r in results if r is not None and p.entry in resting])
        named = {absolute(path) for program in programs for path in program.paths}
        self.survey.checked += len(named - self._judged)

    def _started_as_well(self, results: Sequence[tuple[Program, Result]], started: Collection[Path]) -> list[Program]:
        """The modules that keep a program from being migrated because they are scripts as well: both are, together."""
        refused = {d.message for _, r in results for file in r.files for d in file.diagnoses if d.id == "shared-module"}
        modules = dict.fromkeys(path for program, _ in results for path in program.paths if path not in started)
        found = [path for path in modules if any(by_itself(path) in message for message in refused)]
        return [program for path in found if (program := self._followed(path)) is not None]

    def _count(self, resting: Sequence[tuple[Program, Result]]) -> None:
        """Count the files of programs that need no change: those that are migrated already, and the others that
        train."""
        told = {file.source.path for file in self.survey.files}
        loud = [program for program, result in resting if any(file.diagnoses for file in result.files)]
        silent = [program for program, _ in resting if program not in loud]
        shown = {absolute(path) for path in told}
        for path in (path for program in loud for path in program.paths if self._works(path)):
            if absolute(path) not in shown:
                self.survey.unstarted[absolute(path)] = None
        files = {f: p for p in silent for f in p.paths if f == p.entry or self._works(f) or self._helps(f)}
        for path, program in ((path, program) for path, program in files.items() if path not in told):
            if self._is_left(program):
                self.survey.unstarted[absolute(path)] = None
            elif any(_MIGRATED.search(file.data) for file in program.files):
                self.survey.done += 1
            else:
                self.survey.unchanged += 1

    def _is_left(self, program: Program) -> bool:
        """Whether a program stays on Accelerate, although its import would be swapped if anything started it."""
        config = final(self._raw(program.entry), self.options, program.entry)
        if config.target is Target.ACCELERATE or not config.enables("accelerate_imports"):
            return False
        return any(_ON_ACCELERATE.search(file.data) for file in program.files)

    def _answer(self, program: Program, inside: Collection[Path], started: Collection[Path]) -> Result | None:
        """The migration of a program, as far as it is reported; None if it cannot be read."""
        result = self._migrated(program, inside, started)
        if result is None or result.changed or self.notes:
            return result
        files = (
            file._replace(diagnoses=tuple(d for d in file.diagnoses if d.severity is not Severity.NOTE))
            for file in result.files
        )
        return result._replace(files=tuple(files))

    def _migrated(self, program: Program, inside: Collection[Path], started: Collection[Path]) -> Result | None:
        try:
            notebook, sources, each = self._read(program)
            users = self.map.users(program, inside, started)
            layout = layout_of(program, users, self.map.imported_elsewhere(program))
            given = Given(tuple(sources), each[program.entry], layout, each, notebook)
            self.survey.programs = [known for known in self.survey.programs if known.sources != given.sources]
            self.survey.programs.append(given)
            return self.migrations.of(given)
        except SourceError as error:
            self._refuse(error)
            return None

    def _read(self, program: Program) -> tuple[Notebook | None, list[Source], dict[Path, Config]]:
        """The notebook that a program is started from, its files, and the settings of each. Raises ``SourceError``."""
        notebook = self.library.notebooks.get(absolute(program.entry))
        if notebook is not None:
            notebook.check()
        sources = [decode(file.data, file.path) for file in program.files]
        each = {file.path: final(self._raw(file.path), self.options, file.path) for file in program.files}
        return notebook, sources, each

    def _raw(self, path: Path) -> RawConfig:
        raw = load(path.parent, self._folders)
        self._check(raw)
        return raw

    def _check(self, raw: RawConfig) -> None:
        """Make sure, once for each source of settings, that the rules and roles it names exist."""
        if any(raw is other for other in self._sound):
            return
        check_rules(raw, (entry.id for entry in self.catalogue))
        if raw.assume:
            _check_roles(raw)
        self._sound.append(raw)


def _sound(path: Path, data: bytes) -> None:
    """Raise ``SourceError`` if a file is not text, or not Python."""
    decode(data, path)
    if error := syntax_error(data):
        raise invalid(path, error.lineno or 0, error.msg, error)


def _check_roles(raw: RawConfig) -> None:
    from ..facts.roles import Role

    known: Iterable[str] = [role.value for role in Role]
    where = f"{raw.file}: [tool.torchlift] assume" if raw.file else "--assume"
    for role, _ in raw.assume:
        check_word(where, "role", role, known, f"There are {', '.join(known)}")
