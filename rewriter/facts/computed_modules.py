"""The modules that a file imports by a text: ``import_module("models." + args.model)``. Standard library only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

ANY = "*"
"""Stands for the part of a name that only the run knows."""
_IMPORTS = ("import_module", "__import__")
_MANY = 64
"""Of more names than these none is written out."""
_GAPS = re.compile(r"%(?:\(\w*\))?[srd]|\{[^{}]*\}")
"""What ``%`` and ``format`` fill in."""


class AskedModules(NamedTuple):
    """One call of ``import_module`` or ``__import__``."""

    call: ast.Call
    names: tuple[str, ...]
    """The names that it may ask for; what only the run knows of one is a ``*``, a file's own package a dot."""


def asks(data: bytes) -> bool:
    """Whether a file may import by a text."""
    return any(word.encode() in data for word in _IMPORTS)


def asked_modules(nodes: Sequence[ast.AST]) -> Iterator[AskedModules]:
    """The calls among the nodes of a file that import by a text, each with the names that it may ask for."""
    calls = [node for node in nodes if isinstance(node, ast.Call) and _called(node) in _IMPORTS and node.args]
    values = _values(nodes) if calls else {}
    for call in calls:
        given = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "package")]
        above = _texts(given[0], values) if given and _called(call) == "import_module" else [""]
        found = [
            package + text if text.startswith(".") and ANY not in package else text
            for text in _texts(call.args[0], values)
            for package in above
        ]
        yield AskedModules(call, tuple(dict.fromkeys(text for text in found if text)))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


_Values = Mapping[str, Sequence[ast.expr]]


def _values(nodes: Sequence[ast.AST]) -> dict[str, list[ast.expr]]:
    """What assignments and loops over literals give to the names of a file; nothing known to its parameters."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
        elif isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).extend(_items(node.iter, found) or [node.iter])
        elif isinstance(node, ast.arg):
            found.setdefault(node.arg, []).append(ast.Constant(None))
    return found


def _items(node: ast.expr, values: _Values) -> list[ast.expr]:
    """What a literal list, tuple or dict holds, or one that a name is; nothing where it is not written out."""
    if isinstance(node, ast.Name):
        found = values.get(node.id, ())
        return _items(found[0], {}) if len(found) == 1 else []
    if isinstance(node, ast.Dict):
        return list(node.values)
    return list(node.elts) if isinstance(node, (ast.List, ast.Tuple, ast.Set)) else []


def _texts(node: ast.expr, values: _Values) -> list[str]:
    """The texts that an expression may be."""
    found = list(dict.fromkeys(_spelled(node, values)))
    return found if 0 < len(found) <= _MANY else [ANY]


def _spelled(node: ast.expr, values: _Values) -> Iterator[str]:
    method = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if isinstance(node, ast.Constant):
        yield node.value if isinstance(node.value, str) else ANY
    elif isinstance(node, ast.Name) and node.id in ("__package__", "__name__"):
        yield ""  # the dot that follows makes the name one of the file's own package
    elif isinstance(node, ast.Name) and node.id in values:
        rest = {name: given for name, given in values.items() if name != node.id}
        for value in values[node.id]:
            yield from _texts(value, rest)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _joined([node.left, node.right], values)
    elif isinstance(node, ast.JoinedStr):
        yield from _joined(node.values, values)
    elif isinstance(node, ast.FormattedValue):
        yield from _texts(node.value, values)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        yield from (_GAPS.sub(ANY, text) for text in _texts(node.left, values))
    elif method is not None and method.attr == "format":
        yield from (_GAPS.sub(ANY, text) for text in _texts(method.value, values))
    elif isinstance(node, (ast.IfExp, ast.BoolOp)):
        for part in node.values if isinstance(node, ast.BoolOp) else (node.body, node.orelse):
            yield from _texts(part, values)
    else:
        held = node.value if isinstance(node, ast.Subscript) else None
        held = method.value if method is not None and method.attr == "get" else held
        for item in (_items(held, values) if held is not None else []) or [ast.Constant(None)]:
            yield from _texts(item, values)


def _joined(parts: Sequence[ast.expr], values: _Values) -> Iterator[str]:
    for texts in product(*(_texts(part, values) for part in parts)):
        yield re.sub(r"\*+", ANY, "".join(texts))
