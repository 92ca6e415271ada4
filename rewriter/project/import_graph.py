"""
Follow the local imports of a script: which files make up its program, and under which names. Standard library only.

The rules are Python's own: absolute imports are looked up beside the script first, then in the folders above it up to
the root of the project (as ``python -m`` and an editable install do), relative ones in the package of the file itself.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..facts.computed_modules import ANY, asks
from ..facts.module_paths import ENTRY, resolved
from ..gate.prefilter import TORCH, parse
from ..source import SourceError, decode, invalid, read_bytes
from .import_statements import Import, SearchPath, imports_of, search_paths

if TYPE_CHECKING:
    from ..notebooks.document import Notebook

_MARKERS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg")
_INSTALLED = TORCH | {"numpy", "transformers", "scipy", "sklearn", "pandas", "matplotlib", "tqdm"}
"""Installed packages: a folder above the script with such a name is not the package."""


class Missing(NamedTuple):
    """A local module that does not exist."""

    path: Path
    line: int
    module: str


class Doubled(NamedTuple):
    """A name that fits two files, and the one that Python takes."""

    path: Path
    line: int
    module: str
    taken: Path
    other: Path


class Unfollowed(NamedTuple):
    """An import by a name that is computed, of which no module of the project is known."""

    path: Path
    line: int
    text: str
    """The import, as it is written."""


class File(NamedTuple):
    """One file of a program."""

    name: str
    """Its full module name; ``__main__`` for the entry script."""
    path: Path
    data: bytes
    package: str
    """The package that its relative imports start from."""


class Program:
    """An entry script and the local modules that it reaches."""

    def __init__(self, files: list[File]) -> None:
        self.files = files
        self.aliases: dict[str, str] = {}
        """Further full names of modules: a file that can be imported by two names has its main name and one in here."""
        self.missing: list[Missing] = []
        self.doubled: list[Doubled] = []
        self.families: dict[str, list[str]] = {}
        """The modules that a computed name can mean, by what is written out of it: ``models.*``."""
        self.unfollowed: list[Unfollowed] = []

    @property
    def entry(self) -> Path:
        """The script that is started."""
        return self.files[0].path

    @property
    def paths(self) -> set[Path]:
        """All its files."""
        return {file.path for file in self.files}


class Library:
    """The files that were read, and their imports: shared by all programs of one run."""

    def __init__(self) -> None:
        self.notebooks: dict[Path, Notebook] = {}
        """The notebooks that were read, by full path; their data is the script of their cells."""
        self._data: dict[Path, bytes] = {}
        self._imports: dict[Path, tuple[Import, ...]] = {}
        self._extra: dict[Path, tuple[SearchPath, ...]] = {}
        self._roots: dict[Path, Path | None] = {}
        self._kinds: dict[str, int] = {}
        self._listed: dict[Path, list[Path]] = {}

    def data(self, path: Path) -> bytes:
        """The bytes of a file (of a notebook: of the script of its cells); ``SourceError`` if it cannot be read."""
        full = absolute(path)
        if full not in self._data:
            data = read_bytes(path)
            self._data[full] = data if path.suffix != ".ipynb" else self._cells(data, path)
        return self._data[full]

    def _cells(self, data: bytes, path: Path) -> bytes:
        from ..notebooks.document import read_notebook

        notebook = self.notebooks[absolute(path)] = read_notebook(data, path)
        return notebook.script().encode()

    def give(self, path: Path, data: bytes) -> None:
        """Store the bytes of a file that was read already."""
        self._data[absolute(path)] = data

    def imports(self, path: Path) -> tuple[Import, ...]:
        """What a file imports; ``SourceError`` if it is not valid Python."""
        given, path = path, absolute(path)
        if path not in self._imports:
            data = self.data(path)
            try:
                tree = parse(data) if b"import" in data else ast.Module([], [])
            except SyntaxError as error:
                if path in self.notebooks:
                    self.notebooks[path].check()
                decode(data, given)  # which may give a better error message
                raise invalid(given, error.lineno or 0, error.msg, error) from None
            except (ValueError, RecursionError, MemoryError):
                tree = ast.Module([], [])
            found = imports_of(tree, by_name=asks(data))
            self._imports[path] = tuple(sorted(found, key=lambda each: each.line))
            self._extra[path] = tuple(search_paths(tree)) if b"sys.path" in data else ()
        return self._imports[path]

    def root(self, folder: Path) -> Path | None:
        """The root of the project that contains a folder; None if nothing marks one."""
        if folder not in self._roots:
            if any(os.path.lexists(folder / marker) for marker in _MARKERS):
                self._roots[folder] = folder
            else:
                self._roots[folder] = self.root(folder.parent) if folder.parent != folder else None
        return self._roots[folder]

    def extent(self, path: Path) -> Path:
        """The folder that holds the project of a file. Where nothing marks one, it is the working directory above the
        file, or the highest folder above it whose files import from there."""
        folder = absolute(path).parent
        if (marked := self.root(folder)) is not None:
            return marked
        here, wide = Path.cwd(), _wide()
        top = here if here in folder.parents and here not in wide else folder
        found = [top]
        for inner, outer in pairwise([top, *top.parents][: _FAR + 1]):
            if outer in wide:
                break
            found += [outer] if self._imports_from(outer, inner.name) else []
        return found[-1]

    def _imports_from(self, folder: Path, name: str) -> bool:
        """Whether a module in a folder imports from the folder of a name in it."""
        return any(name.encode() in self._text(path) and name in self._tops(path) for path in self.modules(folder))

    def _text(self, path: Path) -> bytes:
        try:
            return self.data(path)
        except SourceError:  # said where the file is looked at
            return b""

    def _tops(self, path: Path) -> set[str]:
        """The first names of what a file imports; none where it is not Python."""
        try:
            return {each.module.partition(".")[0] for each in self.imports(path)}
        except SourceError:
            return set()

    def search(self, script: Path) -> list[Path]:
        """The folders in which absolute imports of a script are looked up."""
        given, script = script, absolute(script)
        folder, cwd = script.parent, Path.cwd()
        top = self.root(folder) or (cwd if cwd in folder.parents else folder)
        found = [folder]
        for module, added in self._added(given):
            tops = (module.parent,) if added.own else (module.parent, top)
            found += [f for f in (_plain(above / added.text) for above in tops) if f.is_dir()]
        if any(each.module.partition(".")[0] == folder.name for each in self.imports(given)):
            found.append(folder.parent)  # `python -m src.train`
        while top in folder.parents or (folder / "__init__.py").exists():
            folder = folder.parent
            found.append(folder)
        found += [top / "src"] if (top / "src").is_dir() else []
        return list(dict.fromkeys(found))

    def added(self, script: Path) -> list[Path]:
        """The folders that a script, or a module beside it, adds to ``sys.path``."""
        folder = absolute(script).parent
        found = [_plain(module.parent / added.text) for module, added in self._added(script)]
        return [path for path in dict.fromkeys(found) if path.is_dir() and path != folder]

    def _added(self, script: Path) -> Iterator[tuple[Path, SearchPath]]:
        """What a script, and each module beside it that it imports, adds to ``sys.path``: the module, and what."""
        folder = absolute(script).parent
        beside = [p for each in self.imports(script) for p in self.below(folder, each.module.split(".")) if each.module]
        for module in dict.fromkeys((absolute(script), *beside)):
            try:
                if module == absolute(script) or b"sys.path" in self.data(module):
                    self.imports(module)
            except SourceError:  # said where the module is followed
                continue
            yield from ((module, added) for added in self._extra.get(module, ()))

    def modules(self, folder: Path) -> list[Path]:
        """The modules in a folder, without packages."""
        if folder not in self._listed:
            found = sorted(folder.glob("*.py")) if folder.is_dir() else []
            self._listed[folder] = [path for path in found if path.name != "__init__.py"]
        return self._listed[folder]

    def family(self, folder: Path, pattern: str) -> list[Path]:
        """The modules below a folder that a name with gaps can mean: ``models.*``, ``optimizers.*_optimizer``."""
        *above, last = pattern.split(".")
        places = [folder]
        for part in above:
            inner = (each for place in places for each in (self._folders(place) if ANY in part else [place / part]))
            places = [each for each in inner if fnmatchcase(each.name, part)]
        packages = (each / "__init__.py" for place in places for each in self._folders(place))
        found = [path for path in packages if fnmatchcase(path.parent.name, last) and path.is_file()]
        return found + [path for place in places for path in self.modules(place) if fnmatchcase(path.stem, last)]

    def _folders(self, folder: Path) -> list[Path]:
        """The folders in a folder that may be packages."""
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(path for path in found if path.name.isidentifier() and path.is_dir())

    def find(self, search: Sequence[Path], module: str) -> list[Path]:
        """The files that an absolute module name may mean, the one that Python takes first."""
        parts = module.split(".")
        found: dict[Path, None] = {}
        for position, folder in enumerate(search):
            known = parts[0] in sys.stdlib_module_names or parts[0] in _INSTALLED
            if not (position and known) and parts[0]:
                found.update(dict.fromkeys(self.below(folder, parts)))
        return list(found)

    def below(self, folder: Path, parts: Sequence[str]) -> Iterator[Path]:
        """The files that a dotted name means in a folder: the package before the module."""
        base = os.path.join(folder, *parts)  # noqa: PTH118 (many a name is asked for)
        for name in (os.path.join(base, "__init__.py"), f"{base}.py"):  # noqa: PTH118
            if name not in self._kinds:
                self._kinds[name] = os.path.isfile(name)  # noqa: PTH113
            if self._kinds[name]:
                yield Path(name)


def _wide() -> frozenset[Path]:
    """Folders that hold all kinds of projects and are none."""
    from tempfile import gettempdir  # which costs more than a file with nothing to do may

    return frozenset({Path(Path.cwd().anchor), Path.home(), Path(gettempdir())})


def absolute(path: Path) -> Path:
    """The full path of a file; links are not resolved."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (resolve() would follow links)


def _plain(path: Path) -> Path:
    return Path(os.path.normpath(path))


def follow(library: Library, entry: Path) -> Program:
    """The program that a script starts. ``SourceError`` if one of its files cannot be read, or is not Python."""
    return _Follower(library, entry).run()


class _Follower:
    """Follows the imports of one script."""

    def __init__(self, library: Library, entry: Path) -> None:
        self.library, self.entry = library, entry
        self.search = library.search(entry)
        self.names: dict[Path, str] = {}
        """Full path of a file -> its module name."""
        self.program = Program([])

    def run(self) -> Program:
        own = _dotted(self.entry)
        self.names[absolute(self.entry)] = ENTRY
        if self.entry.suffix != ".ipynb":  # nobody can import a notebook
            self.program.aliases[absolute(self.entry).stem] = ENTRY
            self.program.aliases[own] = ENTRY
        self._take(self.entry, ENTRY, own.rpartition(".")[0] if _in_package(self.entry) else "")
        for file in self.program.files:  # the list grows while it is read
            for found in self.library.imports(file.path):
                self._import(file, found)
        return self.program

    def _take(self, path: Path, name: str, package: str) -> None:
        self.program.files.append(File(name, path, self.library.data(path), package))

    def _import(self, file: File, found: Import) -> None:
        if ANY in found.module:
            self._family(file, found)
            return
        name = resolved(file.package, found.module)
        relative = found.module.startswith(".")
        if name is None:
            return
        self._module(file, found, name, relative and bool(found.module.strip(".")))
        for each in found.names:
            if each != "*":
                self._module(file, found, f"{name}.{each}" if name else each, False)

    def _module(self, file: File, found: Import, name: str, certain: bool) -> None:
        """Add the module with a full name to the program, and the packages around it."""
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            whole = ".".join(parts[:count])
            places = self._places(file, whole, found.module)
            if not places:
                local = count > 1 and bool(self._places(file, parts[0], found.module))
                if count == len(parts) and not found.guarded and (certain or (local and whole == found.module)):
                    folder = any(os.path.isdir(f.joinpath(*parts)) for f in self.search)  # noqa: PTH112
                    if not folder and not _is_compiled(file.path.parent, parts[-1]):
                        self.program.missing.append(Missing(file.path, found.line, found.module))
                continue
            path = places[0]
            if len(places) > 1 and count == len(parts) and not self._known(path):
                twins = [p for p in places[1:] if absolute(p) != absolute(self.entry)]
                if twins:
                    self.program.doubled.append(Doubled(file.path, found.line, whole, path, twins[0]))
            self._add(path, whole)

    def _family(self, file: File, found: Import) -> None:
        """Add all modules that a computed name can mean: those of a package, or of a folder added to ``sys.path``."""
        pattern = resolved(file.package, found.module)
        if pattern is None or pattern in self.program.families:
            return
        top = pattern.partition(".")[0]
        folders = self.search if ANY not in top else self.library.added(self.entry)
        for folder in folders:
            members = [path for path in self.library.family(folder, pattern) if path != absolute(self.entry)]
            if not 0 < len(members) <= _LARGEST_FAMILY:
                continue
            for path in members:
                parts = path.relative_to(folder).with_suffix("").parts
                whole = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                for count in range(1, whole.count(".") + 1):
                    for package in self.library.find([folder], ".".join(whole.split(".")[:count])):
                        self._add(package, ".".join(whole.split(".")[:count]))
                self._add(path, whole)
            self.program.families[pattern] = [self.names[path] for path in members]
            return
        if found.call and (ANY in top or self._places(file, top, found.module)):
            self.program.unfollowed.append(Unfollowed(file.path, found.line, found.call))

    def _places(self, file: File, name: str, spelled: str) -> list[Path]:
        if spelled.startswith(".") and file.package:
            top = _package_root(file)
            return list(self.library.below(top, name.split(".")))
        return self.library.find(self.search, name)

    def _known(self, path: Path) -> bool:
        return absolute(path) in self.names

    def _add(self, path: Path, name: str) -> None:
        full = absolute(path)
        known = self.names.get(full)
        if known is None:
            self.names[full] = name
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            self._take(shortened(path, self.entry), name, package)
        elif known != name:
            self.program.aliases[name] = known


def _package_root(file: File) -> Path:
    """The folder that contains a file's outermost package."""
    folder = absolute(file.path).parent
    for _ in file.package.split("."):
        folder = folder.parent
    return folder


def shortened(path: Path, like: Path = Path()) -> Path:
    """A path as the user would write it: relative to the working directory if the entry's path is."""
    if like.is_absolute():
        return absolute(path)
    return Path(os.path.relpath(path))


def _in_package(path: Path) -> bool:
    return (absolute(path).parent / "__init__.py").exists()


_FAR = 4
"""So many folders above a file are searched for scripts that import from there, where nothing marks a project."""
_LARGEST_FAMILY = 40
"""Modules: of a larger folder, none is taken for what a computed name means."""
_COMPILED = frozenset(".c .cc .cpp .cxx .cu .pyx .rs .so .pyd .pyi".split())


def _is_compiled(folder: Path, name: str) -> bool:
    """Whether a module is an extension, built or to be built: its source, its binary or its stub exists."""
    try:
        with os.scandir(folder) as entries:
            return any(e.name.partition(".")[0] == name and Path(e.name).suffix in _COMPILED for e in entries)
    except OSError:
        return False


def _dotted(path: Path) -> str:
    """The longest full name that a script has as a module below one of some folders, through packages only."""
    full = absolute(path)
    folder, parts = full.parent, [full.stem]
    while (folder / "__init__.py").exists() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)
