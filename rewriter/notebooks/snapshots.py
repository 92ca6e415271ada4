"""
What a picture between two trainings shows, kept under a name of its own.

A picture is drawn after all training. Where a later cell binds its value anew (`losses = []` before the next training),
the first one would be lost: so the training keeps it under another name, which the picture reads.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from itertools import count

from .uses import Use, filled, made


def with_snapshots(
    texts: Sequence[str], uses: Sequence[Use], chosen: Sequence[int], beside: Collection[int], prepared: Collection[str]
) -> list[str]:
    """
    The texts of the cells, with what is needed of earlier values.

    What is changed in place cannot be kept so, nor what is prepared: such a picture is refused, as without this.

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
            if not _bound_anew(name, found, uses, [m for m in chosen if m > n]) or _shows(found[before]):
                continue
            new = next(word for number in count(1) if (word := f"{name}_{number}") not in names)
            text = _renamed(found[n], name, new)
            if text is not None:
                names |= {new}
                found[n], found[before] = text, f"{found[before].rstrip()}\n\n{new} = {name}"
    return found


def _bound_anew(name: str, texts: Sequence[str], uses: Sequence[Use], later: Sequence[int]) -> bool:
    """Whether the first later cell that changes what a name stands for gives the name to something else."""
    first = next((m for m in later if name in uses[m].makes or name in filled(texts[m])), None)
    return first is not None and name in uses[first].binds and name not in uses[first].reads


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
