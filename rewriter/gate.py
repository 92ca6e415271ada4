"""
Is there anything to do? Standard library only: what this module answers costs no import of libcst.

First the bytes, then the syntax tree. ``DONE`` is said of a file only when every call that a rule might answer to
stands in a spelling that the rules themselves emit; whatever is not recognised is ``WORK``, which costs time alone.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from enum import Enum

TORCH = frozenset({"torch", "torchvision", "torchaudio", "torchtext", "torchdata", "torchlift", "accelerate"})
"""Top-level modules whose import makes a file one that may train."""


class Verdict(Enum):
    """What the gate says of a file."""

    NOTHING = "nothing"
    """It does not train with torch."""
    DONE = "done"
    """It trains, and everything in it is migrated already."""
    WORK = "work"
    """The rules have to look at it."""


def verdict(data: bytes, triggers: frozenset[str], *, tells: bool = True) -> Verdict:
    """
    Judge a file by its bytes.

    Args:
        data: the file.
        triggers: the names whose calls the rules answer to.
        tells: what is good to know is told of a migrated file as well; without, it is done when no edit is left.
    """
    if b"backward" not in data or not (b"torch" in data or b"accelerate" in data):
        return Verdict.NOTHING
    try:
        tree = parse(data)
        nodes = _nodes(tree)
        if not _trains(nodes):
            return Verdict.NOTHING
        from .done import is_migrated

        return Verdict.DONE if is_migrated(tree, nodes, triggers, tells=tells) else Verdict.WORK
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Verdict.WORK


def helps(data: bytes) -> bool:
    """Whether a file in which ``verdict`` found nothing has backward passes: the step of a script of torch, perhaps."""
    if b".backward" not in data:
        return False
    try:
        return any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in _nodes(parse(data)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def syntax_error(data: bytes) -> tuple[int, str] | None:
    """Return (line, message) where Python cannot parse the bytes of a file, None where it can."""
    try:
        parse(data)
    except SyntaxError as error:
        return error.lineno or 0, error.msg
    except (ValueError, RecursionError, MemoryError):
        pass
    return None


def parse(data: bytes) -> ast.Module:
    """Parse bytes without a word about the invalid escapes that they may hold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(data)


def _nodes(tree: ast.Module) -> list[ast.AST]:
    """Every node that carries a name or a value: three times as fast as ``ast.walk``."""
    stack: list[ast.AST] = [tree]
    found: list[ast.AST] = []
    while stack:
        node = stack.pop()
        found.append(node)
        if node.__class__ is ast.Name or node.__class__ is ast.Constant:  # nothing below them is asked for
            continue
        for name in node._fields:
            value = getattr(node, name)
            if value.__class__ is list:
                stack.extend([item for item in value if isinstance(item, ast.AST)])
            elif isinstance(value, ast.AST) and value._fields:
                stack.append(value)
    return found


def _trains(nodes: Sequence[ast.AST]) -> bool:
    """Whether torch is imported, and something called ``backward`` is used as an attribute or imported."""
    torch = backward = False
    for node in nodes:
        if isinstance(node, ast.Attribute):
            backward = backward or node.attr == "backward"
        elif isinstance(node, ast.Import):
            torch = torch or any(alias.name.partition(".")[0] in TORCH for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            torch = torch or (node.module or "").partition(".")[0] in TORCH
            backward = backward or any(alias.name == "backward" for alias in node.names)
    return torch and backward
