"""What an edit changes for those who call or import the code of a file: parameters, and names that are gone."""

from __future__ import annotations

import ast
from typing import NamedTuple

from ..gate.prefilter import parse


class ChangedCall(NamedTuple):
    """A function that is called in another way, or a name that is gone."""

    name: str
    """What callers write: that of the function or method, or of the class for a constructor."""
    now: str
    """What it takes now; empty for a name that is gone."""


def changed_calls(before: bytes, after: bytes) -> list[ChangedCall]:
    """The functions, methods, classes of a file that old calls no longer fit, and the names that are gone. What has
    another parameter at its end, with a default, is called as before."""
    try:
        old, new = _offers(parse(before)), _offers(parse(after))
    except (SyntaxError, ValueError, RecursionError):
        return []
    found = []
    for place, signature in old.items():
        now = new.get(place)
        if place not in new or (signature is not None and not _fits(signature, now)):
            *around, name = place
            called = around[-1] if name == "__init__" and around else name
            found.append(ChangedCall(called, ast.unparse(now) if now is not None else ""))
    return found


def mentioned(data: bytes) -> set[str]:
    """The names that a file uses in any way."""
    try:
        nodes = list(ast.walk(parse(data)))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found = {node.id for node in nodes if isinstance(node, ast.Name)}
    found |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return found | {node.name.rpartition(".")[2] for node in nodes if isinstance(node, ast.alias)}


def _offers(tree: ast.Module) -> dict[tuple[str, ...], ast.arguments | None]:
    """The functions and methods of a module with their parameters, and its variables."""
    found: dict[tuple[str, ...], ast.arguments | None] = {}
    pending: list[tuple[tuple[str, ...], ast.stmt]] = [((), node) for node in tree.body]
    while pending:
        around, node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            place = (*around, node.name)
            found[place] = node.args
        elif isinstance(node, ast.ClassDef):
            pending += [((*around, node.name), part) for part in node.body]
        elif isinstance(node, ast.Assign) and not around:
            names = (part for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name))
            found.update(dict.fromkeys((name.id,) for name in names))
    return found


def _fits(old: ast.arguments, new: ast.arguments | None) -> bool:
    """Whether every call of the one is a call of the other."""
    if new is None:
        return True  # now a variable, which may be that function all the same
    before, now = [*old.posonlyargs, *old.args], [*new.posonlyargs, *new.args]
    added = len(now) - len(before)
    same = [a.arg for a in before] == [a.arg for a in now[: len(before)]]
    keywords = {a.arg: default for a, default in zip(new.kwonlyargs, new.kw_defaults, strict=True)}
    known = {a.arg for a in old.kwonlyargs}
    given = all(default is not None for name, default in keywords.items() if name not in known)
    return same and given and known <= keywords.keys() and len(new.defaults) >= len(old.defaults) + added
