"""Find the programs: entry scripts that reach files with work, and who else uses their modules."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from ..facts.computed_modules import ANY
from ..facts.module_paths import ModulePaths, Place
from ..gate.prefilter import parse
from ..source import SourceError, discover
from .import_graph import Library, Program, absolute
from .looked_up import looked_into, looked_up

_GUARD = re.compile(rb"__name__\s*==|==\s*__name__")
_OF_TESTS = re.compile(r"(^|/)(tests?|testing)/|(^|/)conftest\.py$")
_LIKE_A_TEST = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
_RUNS_TESTS = re.compile(rb"\b(unittest|pytest)\.main\(|\b(import|from)\s+(pytest|unittest)\b")
"""What a file of tests does that can be started."""
_HAS_TESTS = re.compile(rb"^\s*(async\s+)?def test(_|[A-Z])|^\s*(import|from)\s+(pytest|unittest)\b", re.MULTILINE)

_COMPUTES = re.compile(rb"\b(getattr|__dict__|globals|locals|vars|eval)\b")
"""How a file reads names that it computes."""


class Map:
    """The files of a project and their imports, searched only as far as needed."""

    def __init__(self, library: Library, excludes: Callable[[Path], bool]) -> None:
        self.library, self.excludes = library, excludes
        self._targets: dict[tuple[Path, tuple[Path, ...]], frozenset[Path]] = {}
        self._projects: dict[Path, list[Path]] = {}
        self._words: dict[tuple[Path, bool], frozenset[str]] = {}
        self._texts: dict[Path, bytes] = {}
        self._exports: dict[Path, dict[str, str]] = {}
        self._defined: dict[Path, frozenset[str]] = {}

    def project(self, path: Path) -> list[Path]:
        """The scripts and notebooks of the project that contains a file, by full path; of its folder if nothing marks a
        project."""
        folder = absolute(path).parent
        return self._below(self.library.root(folder) or folder)

    def extent(self, path: Path) -> list[Path]:
        """The scripts and notebooks that may start what a file holds, by full path."""
        return self._below(self.library.extent(path))

    def _below(self, root: Path) -> list[Path]:
        if root not in self._projects:
            self._projects[root] = discover([root])[0]
        return self._projects[root]

    def _around(self, program: Program, roots: Sequence[Path]) -> list[Path]:
        """The files that may use a program's modules: of its project, and below the folders they are imported from."""
        found = dict.fromkeys(self.project(program.entry))
        known = self.library.root(absolute(program.entry).parent) or absolute(program.entry).parent
        for root in roots:
            if known != root and known not in root.parents:
                found.update(dict.fromkeys(self._below(root)))
        return list(found)

    def targets(self, path: Path, roots: Sequence[Path] = ()) -> frozenset[Path]:
        """
        The files that a file imports, by full path; none if it is not valid Python.

        ``roots`` are searched last: folders that another program imports from, and that this one may be started with.
        """
        path = absolute(path)
        key = path, tuple(roots)
        if key not in self._targets:
            try:
                self._targets[key] = frozenset(self._resolve(path, roots))
            except SourceError:
                self._targets[key] = frozenset()
        return self._targets[key]

    def _resolve(self, path: Path, roots: Sequence[Path]) -> Iterable[Path]:
        search = list(dict.fromkeys((*self.library.search(path), *roots)))
        for found in self.library.imports(path):
            if ANY in found.module:
                yield from self._family(search, path, found.module)
                continue
            if found.module.startswith("."):
                yield from self._relative(path, found.module, found.names)
                continue
            for name in (found.module, *(f"{found.module}.{n}" for n in found.names if n != "*")):
                parts = name.split(".")
                for count in range(1, len(parts) + 1):
                    yield from map(absolute, self.library.find(search, ".".join(parts[:count]))[:1])

    def _relative(self, path: Path, module: str, names: Sequence[str]) -> Iterable[Path]:
        rest = module.lstrip(".")
        folder = path.parents[len(module) - len(rest) - 1]
        parts = rest.split(".") if rest else []
        for tail in ([], *([n] for n in names if n != "*")):
            for count in range(len(parts) + len(tail) + 1):
                yield from map(absolute, list(self.library.below(folder, (parts + tail)[:count]))[:1])

    def _family(self, search: Sequence[Path], path: Path, pattern: str) -> Iterable[Path]:
        """The modules of a package that a computed name can mean."""
        rest = pattern.lstrip(".")
        if len(rest) < len(pattern):
            search = [path.parents[len(pattern) - len(rest) - 1]]
        elif ANY in rest.partition(".")[0]:
            return
        for folder in search:
            yield from map(absolute, self.library.family(folder, rest))

    def whole(self, path: Path, roots: Sequence[Path] = ()) -> frozenset[Path]:
        """The files of which a file may read any name, because it computes names: ``getattr(models, args.model)``."""
        found: set[Path] = set()
        if not _COMPUTES.search(self._importing(path)):
            return frozenset()
        search = [*self.library.search(path), *roots]
        for module in looked_into(self._nodes(path)):
            if ANY in module:
                found.update(self._family(search, path, module))
                continue
            names = module.lstrip(".").split(".")
            near = self._relative(path, module, ()) if module.startswith(".") else self.library.find(search, module)
            for target in [absolute(each) for each in near][:: -1 if module.startswith(".") else 1][:1]:
                if names[-1] in ("", target.parent.name if target.stem == "__init__" else target.stem):
                    found.add(target)
        return frozenset(found)

    def _nodes(self, path: Path) -> list[ast.AST]:
        """The nodes of a file; none if it is not valid Python."""
        try:
            return list(ast.walk(parse(self.library.data(path))))
        except (SyntaxError, ValueError, RecursionError, SourceError):
            return []

    def importers(
        self, modules: Collection[Path], universe: Iterable[Path], roots: Sequence[Path] = ()
    ) -> dict[Path, set[Path]]:
        """The files that import any of some modules, each with the modules that it imports."""
        wanted = {absolute(m) for m in modules}
        stems = sorted({os.fsencode(m.parent.name if m.stem == "__init__" else m.stem) for m in wanted})
        if not stems:
            return {}
        pattern = re.compile(rb"\b(?:%s)\b" % b"|".join(map(re.escape, stems)))
        found: dict[Path, set[Path]] = {}
        for path in universe:
            data = self._importing(path)
            # a plain search costs a fraction of a pattern's, and finds nothing in nearly all files
            named = any(stem in data for stem in stems) and _spells(pattern, data, path)
            if named or b"import *" in data or b"import_module" in data:
                hit = self.targets(path, roots) & wanted - {absolute(path)}
                if hit:
                    found[path] = set(hit)
        return found

    def _importing(self, path: Path) -> bytes:
        """The text of a file that imports something; nothing if it imports nothing, or cannot be read."""
        if path not in self._texts:
            try:
                data = self.library.data(path)
            except SourceError:
                data = b""
            self._texts[path] = data if b"import" in data else b""
        return self._texts[path]

    def words(self, path: Path, *, of_imports: bool = False) -> frozenset[str]:
        """
        Every name and attribute that a file reads, imported ones under their original names.

        Names that it defines itself at the top level are left out: `train` may be a function in many files.
        ``of_imports``: only attributes of what it imports; `model.train()` reads an attribute of something that it has
        made.
        """
        if (path, of_imports) not in self._words:
            try:
                tree = parse(self.library.data(path))
            except (SyntaxError, ValueError, RecursionError, SourceError):
                tree = ast.Module([], [])
            self._words[path, of_imports] = frozenset(_words(tree, of_imports))
        return self._words[path, of_imports]

    def entries(self, working: Collection[Path], universe: Sequence[Path]) -> list[Path]:
        """The files that are started and reach files with work: nobody imports them, or they have a ``__main__``
        guard."""
        by_path = {absolute(path): path for path in universe}
        reaching: dict[Path, None] = {absolute(path): None for path in working}
        imported: set[Path] = set()
        fresh = set(reaching)
        while fresh:
            found = self.importers(fresh, universe)
            fresh = set()
            for path, hit in found.items():
                if self.is_test(path):
                    continue
                imported |= hit
                if absolute(path) not in reaching:
                    reaching[absolute(path)] = None
                    fresh.add(absolute(path))
        started = [p for p in reaching if p not in imported or _GUARD.search(self.library.data(by_path.get(p, p)))]
        return sorted((by_path.get(p, p) for p in started if not self.is_test(by_path.get(p, p))), key=os.fspath)

    def users(
        self, program: Program, inside: Collection[Path], started: Collection[Path] = ()
    ) -> dict[Path, dict[str, str]]:
        """
        For each file of a program the names that other files use, each with one of them; with a dot before it a method
        that such a file may call of an object, whatever gives it that.

        Tests are no users: they must change with the code that they test.

        Args:
            program: the program.
            inside: files that are migrated too.
            started: those of them that are migrated as scripts of their own.
        """
        files = [file.path for file in program.files]
        modules = files[1:]
        found: dict[Path, dict[str, str]] = {path: {} for path in files}
        for path in modules:
            if self.excludes(path):
                found[path]["*"] = "(excluded by your settings) someone"
        own = {absolute(path) for path in (*program.paths, *inside)}
        here = {absolute(path): path for path in files}
        roots = _import_roots(program)
        universe = self._around(program, roots)
        reached = self._reached(set(here), universe, roots, lambda p: p in own or self.is_test(p))
        for user, hit in reached.items():
            for full in hit:
                words = self.words(user, of_imports=full == absolute(program.entry))
                for module, used in self._handed_on(full, words, here).items():
                    found[here[module]].update(dict.fromkeys(used, os.path.relpath(user)))
            for full in self.whole(user, roots) & hit:
                every = frozenset({"*", *self._handed(full)})
                for module, used in self._handed_on(full, every, here).items():
                    found[here[module]].update(dict.fromkeys(used, os.path.relpath(user)))
            for full, names in self._methods_named(user, hit, roots, own, here).items():
                found[here[full]].update(dict.fromkeys(names, os.path.relpath(user)))
        alone = {absolute(path) for path in started}
        for path in (path for path in modules if absolute(path) not in alone):
            for word in _of_guard(self.library.data(path)):
                found[path].setdefault(word, by_itself(path))
        return found

    def imported_elsewhere(self, program: Program) -> set[Path]:
        """The files of a program that any other file imports, directly or through others, tests too."""
        here = {absolute(file.path) for file in program.files}
        roots = _import_roots(program)
        own = {absolute(path) for path in program.paths}
        reached = self._reached(here, self._around(program, roots), roots, lambda path: path in own)
        return {path for hit in reached.values() for path in hit}

    def _methods_named(
        self, user: Path, hit: Collection[Path], roots: Sequence[Path], own: Collection[Path], here: Collection[Path]
    ) -> dict[Path, list[str]]:
        """By module of a program, the methods that a file outside it names, or what that imports and hands objects to,
        with a dot before each."""
        outside = self._imported([user], roots, lambda path: path not in own)
        words = frozenset().union(*(self.words(path) for path in outside))
        modules = self._imported(hit, roots, lambda path: path in here)
        return {path: [f".{name}" for name in sorted(words & self._methods(path))] for path in modules}

    def _imported(self, paths: Iterable[Path], roots: Sequence[Path], among: Callable[[Path], bool]) -> set[Path]:
        """Some files, and those of some kind that they import, directly or through others of it."""
        found = set(paths)
        pending = list(found)
        while pending:
            fresh = {path for path in self.targets(pending.pop(), roots) if among(path)} - found
            found |= fresh
            pending += fresh
        return found

    def _methods(self, path: Path) -> frozenset[str]:
        """The names of the functions in the classes of a file."""
        if path not in self._defined:
            classes = (node for node in self._nodes(path) if isinstance(node, ast.ClassDef))
            functions = (node for each in classes for node in each.body if isinstance(node, ast.FunctionDef))
            self._defined[path] = frozenset(function.name for function in functions)
        return self._defined[path]

    def _handed_on(self, module: Path, words: frozenset[str], here: Collection[Path]) -> dict[Path, frozenset[str]]:
        """
        Who reads some names from a module reads them from these modules of a program, each with its names.

        Those are the module itself, and the ones that it imports the names from: a package that hands them on.
        """
        found = {module: words}
        pending = [module]
        while pending:
            path = pending.pop()
            handed = self._handed(path)
            read = frozenset(handed[word] for word in found[path] & handed.keys())
            for target in self.targets(path) & set(here):
                stem = target.parent.name if target.stem == "__init__" else target.stem
                used = found[path] if "*" in handed or stem in read else read
                if not used <= found.get(target, frozenset()):
                    found[target] = found.get(target, frozenset()) | used
                    pending.append(target)
        return found

    def _handed(self, path: Path) -> dict[str, str]:
        """What a file imports, by the name that it has there: its own name; ``*`` where it takes all of a module."""
        if path not in self._exports:
            nodes = self._nodes(path)
            aliases = [a for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for a in node.names]
            self._exports[path] = {a.asname or a.name: a.name.rpartition(".")[2] for a in aliases}
        return self._exports[path]

    def _reached(
        self,
        modules: set[Path],
        universe: Sequence[Path],
        roots: Sequence[Path],
        leaves_out: Callable[[Path], bool],
    ) -> dict[Path, set[Path]]:
        """
        The files that import any of some modules, directly or through others, each with the modules that it reaches.

        ``universe`` has full paths. Exclusion is only checked for the few files that import something.
        """
        reached: dict[Path, set[Path]] = {module: {module} for module in modules}
        fresh = set(modules)
        while fresh:
            found = self.importers(fresh, universe, roots)
            fresh = set()
            for user, hit in found.items():
                if leaves_out(user):
                    continue
                whole = set().union(*(reached[path] for path in hit))
                known = reached.setdefault(user, set())
                if not whole <= known:
                    known |= whole
                    fresh.add(user)
        return {path: hit for path, hit in reached.items() if path not in modules}

    def has_guard(self, path: Path) -> bool:
        """Whether a file has a ``__main__`` guard."""
        return _GUARD.search(self.library.data(path)) is not None

    def is_test(self, path: Path) -> bool:
        """Whether a file is part of a test suite: nobody starts it to train. The name alone does not say so."""
        name = Path(os.path.relpath(path)).as_posix()
        if _OF_TESTS.search(name):
            return True
        try:
            text = self.library.data(path) if _LIKE_A_TEST.search(name) is not None else b""
            program = _GUARD.search(text) is not None and _RUNS_TESTS.search(text) is None
            return _HAS_TESTS.search(text) is not None and not program
        except SourceError:
            return True

    def testers(self, changed: Collection[Path], program: Program) -> dict[Path, set[Path]]:
        """The tests that import changed modules of a program."""
        around = self._around(program, _import_roots(program))
        return self.importers(changed, [path for path in around if self.is_test(path)])


_IMPORT = re.compile(rb"(?:^|[;:])[ \t\f]*(?:from|import)\b", re.MULTILINE)
_BY_TEXT = re.compile(rb"import_module|__import__|\r(?!\n)")
"""What may import a module by a text, or has lines that end in another way."""


def _spells(pattern: re.Pattern[bytes], data: bytes, path: Path) -> bool:
    """Whether a file may import something with one of some names: its import statements spell one, or it is in a
    package with such a name, or imports by a text and has one somewhere."""
    if _BY_TEXT.search(data) or any(pattern.fullmatch(os.fsencode(folder.name)) for folder in path.parents):
        return pattern.search(data) is not None
    return any(pattern.search(statement) for statement in _import_statements(data))


def _import_statements(data: bytes) -> Iterator[bytes]:
    for found in _IMPORT.finditer(data):
        start = place = found.end()
        depth, goes_on = 0, True
        while goes_on:
            end = data.find(b"\n", place)
            line = data[place : end if end >= 0 else len(data)].partition(b"#")[0].rstrip()
            depth += line.count(b"(") - line.count(b")")
            goes_on = end >= 0 and (depth > 0 or line.endswith(b"\\"))
            place = end + 1 if end >= 0 else len(data)
        yield data[start:place]


def _import_roots(program: Program) -> list[Path]:
    """The folders from which a program imports its modules by their full names."""
    found: dict[Path, None] = {}
    for file in program.files[1:]:
        parts = file.name.split(".")
        path = absolute(file.path)
        module = path.parent if path.name == "__init__.py" else path.with_suffix("")
        if list(module.parts[-len(parts) :]) == parts:
            found[module.parents[len(parts) - 1]] = None
    return list(found)


def _words(tree: ast.Module, of_imports: bool) -> set[str]:
    nodes = list(ast.walk(tree))
    own = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    aliases = [node for node in nodes if isinstance(node, ast.alias)]
    imported = {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    found = {node.id for node in nodes if isinstance(node, ast.Name)} - own | looked_up(nodes)
    found |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and (not of_imports or _root(n) in imported)}
    return found | {alias.name.rpartition(".")[2] for alias in aliases if alias.asname in found}


def _root(node: ast.expr) -> str | None:
    """The first name in a chain of attributes."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _of_guard(data: bytes) -> set[str]:
    """The names that a file's ``__main__`` guard mentions; attributes with a dot before them."""
    if not _GUARD.search(data):
        return set()
    try:
        tree = parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test):
            found.update(n.id for n in ast.walk(statement) if isinstance(n, ast.Name))
            found.update(f".{n.attr}" for n in ast.walk(statement) if isinstance(n, ast.Attribute))
    return found - {"__name__"}


def by_itself(path: Path) -> str:
    """A module that is a script as well, as a user of its own functions."""
    return f"{path} itself (when it is started)"


def layout_of(
    program: Program, shared: dict[Path, dict[str, str]], elsewhere: Collection[Path] = frozenset()
) -> ModulePaths:
    """How the modules of a program find each other, and which of them other files import."""
    places = {
        file.name: Place(file.name, file.package, shared.get(file.path, {}), absolute(file.path) in elsewhere)
        for file in program.files
    }
    return ModulePaths(places, program.aliases, {start: tuple(found) for start, found in program.families.items()})
