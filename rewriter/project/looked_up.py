"""Names that a file reads from modules without an import or an attribute: ``getattr(models, options.model)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ..facts.computed_modules import asked_modules
from ..facts.spellings import OWN_NAMES

_LOOKING = OWN_NAMES | {"eval"}


def looked_up(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that a file reads as text of what it imports: ``getattr(models, "small")``; all that it imports, where
    it computes a name."""
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    modules = _by_name(nodes)
    asked = (call for call in calls if _named(call) == "getattr" and len(call.args) > 1)
    texts = (call.args[1] for call in asked if any(_spelled(call.args[0], modules)))
    found = {text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)}
    if any(map(_reads_own, calls)):
        found |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return found - {"*"}


def looked_into(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The modules of which a file may read any name, with their leading dots; ``nets.*`` for all of a package."""
    modules = _by_name(nodes)
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            yield from _spelled(node.value, modules)
        elif isinstance(node, ast.Call) and node.args:
            name, fixed = _named(node), len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
            if name == "vars" or (name == "getattr" and not fixed):
                yield from _spelled(node.args[0], modules)
    if any(isinstance(node, ast.Call) and _reads_own(node) for node in nodes):
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                yield "." * node.level + (node.module or "")


def _by_name(nodes: Sequence[ast.AST]) -> dict[str, list[str]]:
    """The modules that each name of a file may be."""
    found: dict[str, list[str]] = {}
    for name, module in _modules(nodes):
        found.setdefault(name, []).append(module)
    return found


def _modules(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    """The names under which a file may have modules, and theirs."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                own = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (own, own)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (f"{node.module}." if node.module else "")
            for alias in node.names:
                yield alias.asname or alias.name, start + alias.name
    asked = {each.call: each.names for each in asked_modules(nodes)}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield from ((target.id, name) for name in asked.get(node.value, ()))


def _spelled(node: ast.expr, modules: dict[str, list[str]]) -> Iterator[str]:
    """The module that an expression may be: ``models``, ``package.models``."""
    tail: list[str] = []
    while isinstance(node, ast.Attribute):
        tail.insert(0, node.attr)
        node = node.value
    for module in modules.get(node.id, ()) if isinstance(node, ast.Name) else ():
        yield ".".join([module, *tail])


def _named(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _reads_own(call: ast.Call) -> bool:
    """Whether a call may read any name that the file has: ``globals()[name]``, ``eval(name)``."""
    own = isinstance(call.func, ast.Name) and call.func.id in _LOOKING
    return own and (not call.args or (_named(call) == "eval" and not isinstance(call.args[0], ast.Constant)))
