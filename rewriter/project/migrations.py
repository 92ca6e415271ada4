"""The migrations of the programs of one run: from the cache if they are known, else by the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..config import Config
from ..facts.module_paths import ModulePaths
from ..result import Result
from ..source import Source
from .import_graph import Library, absolute

if TYPE_CHECKING:
    from ..gate.cache import Cache
    from ..notebooks.document import Notebook
    from ..rule import Entry
    from .session import PlannedProgram


class Given(NamedTuple):
    """One program as the pipeline takes it."""

    sources: tuple[Source, ...]
    config: Config
    layout: ModulePaths
    each: Mapping[Path, Config]
    notebook: Notebook | None = None
    """The first source is the script of its cells."""

    @property
    def shown(self) -> tuple[Source, ...]:
        """The sources as results name them: a notebook as its file."""
        if self.notebook is None:
            return self.sources
        from ..notebooks.document import file_of

        return (file_of(self.notebook), *self.sources[1:])

    def planned(self, catalogue: Sequence[Entry]) -> PlannedProgram:
        """Analyse the program and ask the rules, without applying anything. Raises ``SourceError``."""
        if self.notebook is not None:
            from ..notebooks.migrating import plan_notebook

            return plan_notebook(self.notebook, self.sources[1:], catalogue, self.config, self.layout, self.each)
        from ..pipeline import plan

        return plan(self.sources, catalogue, self.config, self.layout, self.each)


class Migrations:
    """Results for programs, each as the pipeline would return it."""

    def __init__(self, catalogue: Sequence[Entry], library: Library, *, cached: bool) -> None:
        self.catalogue = catalogue
        self.library = library
        self.cached = cached
        """Whether the cache is read and written."""
        self._cache: Cache | None = None

    def of(self, given: Given) -> Result:
        """The result for a program. Raises ``SourceError``."""
        root = self._root(absolute(given.sources[0].path)) if self.cached else None
        if root is None:
            return given.planned(self.catalogue).result()
        from ..gate.cache import Cache
        from ..gate.keys import judge, subject

        self._cache = self._cache or Cache(lambda: judge(self.catalogue))
        cells = given.notebook.data if given.notebook is not None else None
        digest = subject(given.sources, given.layout, given.each, cells)
        slot = self._cache.slot(root, absolute(given.sources[0].path), digest)
        known = self._cache.find(slot, given.shown) if slot is not None else None
        if known is not None:
            return known
        result = given.planned(self.catalogue).result()
        if slot is not None:
            self._cache.keep(slot, result)
        return result

    def notes(self) -> list[str]:
        """Notes about the cache, as sentences without their full stop."""
        return self._cache.notes() if self._cache is not None else []

    def _root(self, script: Path) -> Path | None:
        """
        The folder that holds the cache for a script: the root of its project, else the working directory.

        None for a script that is in neither: nothing is written to an unrelated folder.
        """
        cwd = Path.cwd()
        return self.library.root(script.parent) or (cwd if cwd in script.parents else None)
