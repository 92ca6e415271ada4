"""
Files outside the migrated programs that join their processes by themselves, and use code that has changed.

What suits a script of one process need not suit them: a function that waits for all processes hangs where only one of
them calls it, and what each of them wrote is written by one.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ..findings import Severity
from ..gate.prefilter import parse
from ..result import Diagnosis, FileResult
from ..source import SourceError
from .entry_points import Map
from .import_graph import absolute

_JOINS = re.compile(rb"\binit_process_group\b")
_TOGETHER = frozenset("wait_for_everyone gather_for_metrics gather reduce broadcast_object_list prepare".split())


def with_joined_users(files: list[FileResult], own: Collection[Path], map: Map) -> list[FileResult]:
    """The files, with a finding for each of which such a file uses what has changed; ``own``: those of the programs."""
    changed = {absolute(f.source.path): f for f in files if f.changed and f.source.notebook is None}
    first = next(iter(changed), None)
    others = [p for p in map.project(first) if absolute(p) not in own and not map.is_test(p)] if first else []
    found: dict[Path, Diagnosis] = {}
    for user, modules in map.importers(changed, others).items():
        for module in sorted(modules - found.keys()) if _joins(map, user, set()) else ():
            code = _changed(changed[module].source.data, changed[module].after)
            used = sorted(map.words(user) & code.keys())
            if used:
                found[module] = _finding(os.path.relpath(user), used, any(code[name] for name in used))
    return [_noted(file, found.get(absolute(file.source.path))) for file in files]


def _joins(map: Map, path: Path, seen: set[Path]) -> bool:
    """Whether a file, or one that it imports, opens a process group."""
    path = absolute(path)
    if path in seen:
        return False
    seen.add(path)
    try:
        if _JOINS.search(map.library.data(path)):
            return True
    except SourceError:
        return False
    return any(_joins(map, target, seen) for target in map.targets(path))


def _changed(before: bytes, after: bytes) -> dict[str, bool]:
    """The functions and classes of a file that do something else than before, also by way of one another; and whether
    all processes must call them together now."""
    try:
        old, new = dict(_code(parse(before))), dict(_code(parse(after)))
    except (SyntaxError, ValueError, RecursionError):
        return {}
    names = {place: _names(node) for place, node in new.items()}
    found = {
        place: bool((names[place] - _names(old[place])) & _TOGETHER)
        for place, node in new.items()
        if place in old and ast.dump(node) != ast.dump(old[place])
    }
    pending = list(found)
    while pending:
        place = pending.pop()
        for other in names:
            if place in names[other] and other != place and (other not in found or found[place] > found[other]):
                found[other] = found[place]
                pending.append(other)
    return found


def _code(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return ((node.name, node) for node in tree.body if isinstance(node, kinds))


def _names(node: ast.AST) -> set[str]:
    parts = list(ast.walk(node))
    return {n.id for n in parts if isinstance(n, ast.Name)} | {n.attr for n in parts if isinstance(n, ast.Attribute)}


def _noted(file: FileResult, told: Diagnosis | None) -> FileResult:
    return file if told is None else file._replace(diagnoses=(*file.diagnoses, told))


def _finding(user: str, used: Sequence[str], together: bool) -> Diagnosis:
    names = ", ".join(f"`{name}`" for name in used)
    what = (
        "all of its processes must call it together now: where only one does, it waits for the others forever"
        if together
        else "of its processes only the main one does now what every one did: print, write, download"
    )
    remedy = f"call it on every process of {user}" if together else f"check that {user} needs it on no other process"
    return Diagnosis(
        "shared-module",
        Severity.REVIEW if together else Severity.NOTE,
        f"{user}, which joins its processes by itself and is not part of this program, also uses {names}: {what}",
        f"{remedy}, or give it a function of its own",
    )
