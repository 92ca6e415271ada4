"""What the lines that only a notebook understands read and bind: they name the notebook's variables as Python does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .document import MASK, is_python

_RUNS = re.compile(r"%(?:time|timeit|prun|memit|lprun|mprun)\s+(.+)")
_ASSIGNS = re.compile(r"([\w.,\s]+?)=\s*([%!].*)")
_STORES = re.compile(r"%(?:store|pinfo2?|pdoc|pdef|psource)\s+(.+)")
_CAPTURES = re.compile(r"%%capture\s+(?:--?\w\S*\s+)*([a-zA-Z_]\w*).*")
_EXPANDED = re.compile(r"(?<![\\$])\$(\w+)|(?<![\\$])(?:\$)?\{([^{}]+)\}")
"""``$name`` and ``{expression}``, in which a notebook puts values into a shell line or the words of a magic."""


def used_by_magics(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names that the magics of a masked cell read, and those that they bind."""
    reads: set[str] = set()
    binds: set[str] = set()
    for line in _lines(text):
        given, line = _assigned(line)
        binds.update(given)
        code = run_by(line)
        for read, bound in _names(code) if code else _in_words(line):
            (binds if bound else reads).add(read)
    return frozenset(reads - binds), frozenset(binds)


def run_by(line: str) -> str:
    """The Python code that a magic runs in its line, without its options: ``%timeit -n 10 fit(model)``."""
    found = _RUNS.fullmatch(line.strip())
    code = found[1] if found is not None else ""
    while code and not is_python(code):
        first, _, code = code.partition(" ")
        if not first.startswith("-") and not first.isdigit():
            return ""
    return code


def _lines(text: str) -> Iterator[str]:
    """The lines of magics; of a cell in another language the first alone, which the notebook reads."""
    for line in text.split("\n"):
        found = line.partition(MASK)[2].strip()
        if found:
            yield found
        if found.startswith("%%") and all(MASK in one for one in text.split("\n") if one.strip()):
            return


def _assigned(line: str) -> tuple[list[str], str]:
    """The names that a line gives the output of a magic, and that magic: ``files = !ls``, ``%%capture out``."""
    if captured := _CAPTURES.fullmatch(line):
        return [captured[1]], line
    found = _ASSIGNS.fullmatch(line)
    return (re.findall(r"\w+", found[1]), found[2]) if found is not None else ([], line)


def _in_words(line: str) -> Iterator[tuple[str, bool]]:
    if found := _STORES.fullmatch(line):
        yield from ((name, " -r " in line) for name in re.findall(r"(?<!-)\b[a-zA-Z_]\w*", found[1]))
        return
    for name, code in _EXPANDED.findall(line):
        yield from [(name, False)] if name else _names(code)


def _names(code: str) -> Iterator[tuple[str, bool]]:
    if is_python(code):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Name):
                yield node.id, isinstance(node.ctx, ast.Store)
