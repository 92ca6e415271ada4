"""What the source text says: which parts can make a difference, and where a statement begins and ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WINGS = ("rewriter", "codemods", "runtime")


def spread(sizes: Mapping[str, int], number: int) -> dict[str, int]:
    """Divide a number by size; what is left after rounding down goes to those that lost most."""
    whole = sum(sizes.values())
    counts = {name: number * size // whole for name, size in sizes.items()}
    by_rest = sorted(sizes, key=lambda name: (-(number * sizes[name] % whole), name))
    for name in by_rest[: number - sum(counts.values())]:
        counts[name] += 1
    return counts


def unevaluated(text: str) -> set[tuple[int, int]]:
    """Positions (line, column) of what no interpreter looks at: annotations, and what only a type checker imports."""
    lines = text.splitlines()
    found: set[tuple[int, int]] = set()
    for node in ast.walk(ast.parse(text)):
        for part in _only_read(node):
            assert part.end_lineno is not None and part.end_col_offset is not None
            for number in range(part.lineno, part.end_lineno + 1):
                first = part.col_offset if number == part.lineno else 0
                last = part.end_col_offset if number == part.end_lineno else len(lines[number - 1])
                found |= {(number, column) for column in range(first, last)}
    return found


def _only_read(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
        yield node.annotation
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
        yield node.returns
    elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        yield node


def statement(text: str, line: int) -> int | None:
    """
    The lines of the statement at a line, without its body, as bits: an interpreter does not report each of them.

    None outside of functions, where every test that uses the module depends on what was executed at its import.
    """
    innermost: ast.stmt | None = None
    inside = False
    for node in ast.walk(ast.parse(text)):  # what is deeper comes later
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            innermost = node
            inside |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and line >= node.body[0].lineno
    if innermost is None or not inside:
        return None
    body = getattr(innermost, "body", None)
    last = body[0].lineno - 1 if body else innermost.end_lineno
    assert last is not None
    return sum(1 << number for number in range(innermost.lineno, max(last, line) + 1))
