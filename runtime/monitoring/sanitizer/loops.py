"""The loops of a file, by their lines."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def loops_around(file: str, line: int) -> list[str]:
    """The loops around a line in its own function, as `file:line` of their beginnings; the innermost first."""
    function, loops = _blocks(file)
    home = max((first for first, last in function if first <= line <= last), default=0)
    around = [first for first, last in loops if home <= first <= line <= last and (first < line or first == last)]
    return [f"{file}:{first}" for first in sorted(around, reverse=True)]


@lru_cache(maxsize=256)
def _blocks(file: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """First and last lines of the functions of a file, and of its loops."""
    functions: list[tuple[int, int]] = []
    loops: list[tuple[int, int]] = []
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):  # no Python, or of another version
        return [], []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append((node.lineno, node.end_lineno or node.lineno))
        elif isinstance(node, _LOOPS):
            last = node.end_lineno or node.lineno
            loops.append((node.lineno, last))
    return functions, loops
