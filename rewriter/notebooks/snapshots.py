"""
What a picture between two trainings shows, kept under a name of its own.

A picture is drawn after all training. Where a later cell binds its value anew (`losses = []` before the next training),
or adds to a list, the first value would be lost: so the training keeps it, or a copy of the list, under another name,
which the picture reads.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from itertools import count

from .uses import Use, filled, made

_LOOKING = frozenset("print len sum max min round float str repr".split())
"""Functions that change nothing of what is in a list."""


def with_snapshots(
    texts: Sequence[str], uses: Sequence[Use], chosen: Sequence[int], beside: Collection[int], prepared: Collection[str]
) -> list[str]:
    """
    The texts of the cells, with what is needed of earlier values.

    What else is changed in place cannot be kept so, nor what is prepared: such a picture is refused, as without this.

    Args:
        texts: of the cells, masked.
        uses: of the cells.
        chosen: the positions of those that belong to the training.
        beside: of those that show something.
        prepared: names of what the accelerator prepares.
    """
    found = list(texts)
    names = frozenset[str]().union(*(one.binds | one.reads for one in uses))
    for n in sorted(n for n in beside if chosen[0] < n < chosen[-1]):
        before = max(m for m in chosen if m < n)
        read = uses[n].reads & made(uses, [m for m in chosen if m < n])
        for name in sorted(read - set(prepared) - uses[n].binds):
            later = [m for m in chosen if m > n and name in uses[m].makes | uses[m].reads | set(filled(found[m]))]
            if not later:
                continue
            anew = _bound_anew(name, found, uses, later)
            grows = not anew and _is_list(name, found[: n + 1]) and _only_grows(name, [found[m] for m in later])
            if not (anew or grows) or _shows(found[before]):
                continue
            new = next(word for number in count(1) if (word := f"{name}_{number}") not in names)
            text = _renamed(found[n], name, new)
            if text is not None:
                names |= {new}
                found[n], found[before] = text, f"{found[before].rstrip()}\n\n{new} = {name}{'[:]' if grows else ''}"
    return found


def _bound_anew(name: str, texts: Sequence[str], uses: Sequence[Use], later: Sequence[int]) -> bool:
    """Whether the first later cell that changes what a name stands for gives the name to something else."""
    first = next((m for m in later if name in uses[m].makes or name in filled(texts[m])), None)
    return first is not None and name in uses[first].binds and name not in uses[first].reads


def _is_list(name: str, texts: Sequence[str]) -> bool:
    """Whether all that cells bind a name to are lists that begin empty."""
    values = [
        node.value if isinstance(node, ast.Assign) else None
        for text in texts
        for node in ast.walk(ast.parse(text))
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
        if isinstance(target, ast.Name) and target.id == name
    ]
    return bool(values) and all(isinstance(value, ast.List) and not value.elts for value in values)


def _only_grows(name: str, texts: Sequence[str]) -> bool:
    """Whether cells do nothing to a list but add to it, and read it: what is in it stays as it is."""
    for text in texts:
        tree = ast.parse(text)
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == name and not _adds_or_reads(node, parents):
                return False
    return True


def _adds_or_reads(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> bool:
    above = parents[node]
    if isinstance(above, ast.Attribute):
        return above.attr in ("append", "extend") and isinstance(parents[above], ast.Call)
    if isinstance(above, ast.Subscript) and above.value is node and isinstance(above.ctx, ast.Load):
        above = parents[above]
    if isinstance(above, ast.Call):
        return getattr(above.func, "id", "") in _LOOKING
    return isinstance(above, ast.FormattedValue | ast.BinOp | ast.Compare)


def _shows(text: str) -> bool:
    """Whether a notebook displays the value of a cell's last line."""
    body = ast.parse(text).body
    return bool(body) and isinstance(body[-1], ast.Expr)


def _renamed(text: str, name: str, new: str) -> str | None:
    """A text that reads another name; None where not every place of it is known."""
    tree = ast.parse(text)
    if any(isinstance(node, ast.arg) and node.arg == name for node in ast.walk(tree)):
        return None
    lines = text.encode().split(b"\n")
    places = [(n.lineno, n.col_offset) for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name]
    for number, column in sorted(places, reverse=True):
        line = lines[number - 1]
        end = column + len(name.encode())
        if line[column:end] != name.encode():  # in an f-string, before Python 3.12
            return None
        lines[number - 1] = line[:column] + new.encode() + line[end:]
    return b"\n".join(lines).decode()
