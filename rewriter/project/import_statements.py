"""What one file imports, and what it adds to the places where imports are looked up. Standard library only."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..facts.computed_modules import ANY, asked_modules


class Import(NamedTuple):
    """One module that a file imports, as it is spelled there."""

    module: str
    """With its leading dots."""
    names: tuple[str, ...]
    """What is imported from it; ``*`` for everything, nothing for ``import module``."""
    line: int
    guarded: bool
    """It may fail: it is under a ``try``."""
    call: str = ""
    """Of an import by a text whose module is used: the call."""


class SearchPath(NamedTuple):
    """What a module adds to ``sys.path``."""

    text: str
    """A folder, as it is written; or relative to that of the module."""
    own: bool
    """It is computed from the place of the module alone: ``dirname(__file__)``."""


def imports_of(tree: ast.Module, *, by_name: bool) -> Iterator[Import]:
    """
    All imports of a file at any depth, except those that are only for the type checker.

    ``by_name``: also those by ``import_module("pkg.mod")``, which requires a look at every expression.
    """
    pending: list[tuple[ast.stmt, bool]] = [(statement, False) for statement in tree.body]
    asked = {each.call: each.names for each in asked_modules(list(ast.walk(tree)))} if by_name else {}
    while pending:
        node, guarded = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), node.lineno, guarded)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import("." * node.level + (node.module or ""), names, node.lineno, guarded)
        for call in _calls(node) if asked else ():
            names = asked.get(call, ())
            tried = guarded and isinstance(node, ast.Expr) and node.value is call  # it asks whether there is one
            for name in names:
                text = ast.unparse(call) if not tried else ""
                yield Import(name, (), call.lineno, guarded or len(names) > 1 or ANY in name, text)
        if isinstance(node, ast.If) and _types_only(node.test):
            pending.extend((child, guarded) for child in node.orelse)
            continue
        inner = guarded or isinstance(node, ast.Try)
        pending.extend((child, inner) for child in _inside(node))


def _inside(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statements of the blocks of a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(node, name, ())
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from part.body


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """The calls in a statement, without its blocks."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Call):
            yield node
        pending.extend(child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt))


def _types_only(test: ast.expr) -> bool:
    """``TYPE_CHECKING``, or ``TYPE_CHECKING or SLOW_IMPORT``: packages that import lazily write their imports so."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return any(map(_types_only, test.values))
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def search_paths(tree: ast.Module) -> Iterator[SearchPath]:
    """The literal parts of what a module adds to ``sys.path``, by itself or by a function of its own; its own folder,
    or one above, where there are none."""
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    values: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.FunctionDef):
            given = [call.args for call in calls if isinstance(call.func, ast.Name) and call.func.id == node.name]
            for position, parameter in enumerate(node.args.args):
                values.setdefault(parameter.arg, []).extend(args[position] for args in given if position < len(args))
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "insert", "extend"):
            owner = call.func.value
            if getattr(owner, "attr", "") == "path":
                for added in call.args:
                    parts = list(_literal_parts(added, values, set()))
                    yield from (SearchPath(part, own=False) for part in parts)
                    above = _above_file(added, values, frozenset()) if not parts else None
                    if above:
                        yield SearchPath("/".join([".", *[".."] * (above - 1)]), own=True)


def _above_file(node: ast.expr, values: Mapping[str, Sequence[ast.expr]], seen: frozenset[str]) -> int | None:
    """How many folders an expression goes up from ``__file__``: 1 for ``os.path.dirname(os.path.abspath(__file__))``,
    ``Path(__file__).parent``, ``Path(__file__).parents[0]``; None where it is something else."""
    if isinstance(node, ast.Name):
        if node.id == "__file__":
            return 0
        given = values.get(node.id, ()) if node.id not in seen else ()
        return _above_file(given[0], values, seen | {node.id}) if len(given) == 1 else None
    if isinstance(node, ast.Attribute):
        inner = _above_file(node.value, values, seen) if node.attr == "parent" else None
        return inner + 1 if inner is not None else None
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
        inner = _above_file(node.value.value, values, seen)
        place = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return inner + place + 1 if inner is not None and isinstance(place, int) and place >= 0 else None
    if not isinstance(node, ast.Call):
        return None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in ("resolve", "absolute") and isinstance(node.func, ast.Attribute):
        return _above_file(node.func.value, values, seen)
    if name not in ("dirname", "abspath", "realpath", "normpath", "Path", "str") or len(node.args) != 1:
        return None
    inner = _above_file(node.args[0], values, seen)
    return inner + (name == "dirname") if inner is not None else None


def _literal_parts(node: ast.expr, values: Mapping[str, Sequence[ast.expr]], seen: set[str]) -> Iterator[str]:
    """The literals of an expression that makes a path, each alone and all joined; names are followed, each once."""
    words: list[str] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value:
            words.append(part.value)
        elif isinstance(part, ast.Name) and part.id in values and part.id not in seen:
            seen.add(part.id)  # for all that follows: names that are made of one another lead to ever more ways
            for value in values[part.id]:
                yield from _literal_parts(value, values, seen)
    yield from words
    if len(words) > 1:
        yield os.path.join(*words)  # noqa: PTH118
