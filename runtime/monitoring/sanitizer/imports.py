"""Runs the files of the script in their rewritten form: the one that is started, and those that it imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from .events import EventLog
from .rewriting import rewritten


class ScriptCode:
    """
    Runs files of the script in their rewritten form.

    Args:
        functions: what the rewritten form calls, by its names.
    """

    def __init__(self, functions: Mapping[str, Any]) -> None:
        self._functions = functions

    def run(self, text: bytes, file: str, names: dict[str, Any]) -> None:
        """
        Run a file in a name space. That of a file without calls stays as it is: it may be read as settings.

        Raises:
            SyntaxError: it is no Python.
        """
        tree = rewritten(ast.parse(text, file), file)
        code = compile(tree, file, "exec", dont_inherit=True)
        if any(isinstance(one, ast.Name) and one.id in self._functions for one in ast.walk(tree)):
            names.update(self._functions)
        exec(code, names)


class _Loader(SourceFileLoader):
    """Compiles anew at every start: what is cached is of the script as it is."""

    def __init__(self, name: str, path: str, code: ScriptCode) -> None:
        super().__init__(name, path)
        self._code = code

    def exec_module(self, module: ModuleType) -> None:
        self._code.run(self.get_data(self.path), self.path, module.__dict__)


class Finder(MetaPathFinder):
    """
    Finds what the usual finder does; modules of the script get another loader.

    Args:
        log: knows which files are the script's.
        code: runs them.
    """

    def __init__(self, log: EventLog, code: ScriptCode) -> None:
        self._log = log
        self._code = code

    def install(self) -> None:
        """Ask this one before the usual finder."""
        place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(place, self)

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module of the script; None for all others."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not self._log.is_script(spec.origin or "<"):
            return None
        spec.loader = _Loader(fullname, spec.origin or "", self._code)
        return spec
