"""What was assumed of a name that nothing in the programs has: most likely a name that is misspelled."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from ..gate.prefilter import parse


def unmatched(assume: Sequence[tuple[str, str]], texts: Iterable[str]) -> Iterator[str]:
    """What to say of each assumption that names nothing."""
    if not assume:
        return
    names = {name for text in texts for name in _names(text)}
    for role, name in assume:
        if names and name not in names:
            from difflib import get_close_matches

            near = get_close_matches(name, sorted(names), 1)
            meant = f". Did you mean --assume {role}={near[0]}?" if near else "."
            yield f"--assume {role}={name} matches nothing: no variable in these programs is called {name}{meant}"


def _names(text: str) -> Iterator[str]:
    """The variables, parameters and attributes of a file."""
    try:
        nodes = list(ast.walk(parse(text.encode())))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)
