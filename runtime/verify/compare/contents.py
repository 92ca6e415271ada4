"""What files hold: texts line by line, arrays number by number, the rest as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from ..traces import FileSeen
from .printed import Line, agree
from .tolerances import About

_OBJECTS = {".joblib", ".pickle", ".pkl"}
_SAME_BYTES = _OBJECTS | {".bmp", ".gif", ".jpeg", ".jpg", ".npy", ".npz", ".png"}
"""What one process writes a second time with the same bytes."""
_SIZES = 1.25
"""Between sizes of one object with other numbers in it."""
_FLIPPED = 0.005
"""So large a part of predicted classes may differ by rounding."""


def differ(name: str, a: FileSeen, b: FileSeen, about: About, again: Sequence[str] = ()) -> str:
    """
    How a file differs from the original's, in words; empty when it is the same, or cannot be compared.

    Args:
        name: of the file.
        a: the original's.
        b: the migrated script's.
        about: the comparison.
        again: what the original wrote in other runs, where that differs.
    """
    if a.hash == b.hash and a.size == b.size:
        return ""
    kind = PurePath(name).suffix.lower()
    if a.text is not None and b.text is not None:
        return _texts(a.text, b.text, about, again)
    if a.arrays is not None and b.arrays is not None:
        return _arrays(a.arrays, b.arrays, about)
    if about.alone and kind in _SAME_BYTES:
        return "its bytes are not the original's"
    if kind in _OBJECTS and max(a.size, b.size) > _SIZES * min(a.size, b.size):
        return f"{b.size} bytes, the original's has {a.size}"
    return ""


def _texts(a: str, b: str, about: About, again: Sequence[str]) -> str:
    first, second, others = a.splitlines(), b.splitlines(), [text.splitlines() for text in again]
    if any(len(other) != len(first) for other in others):
        return ""
    if len(first) != len(second):
        return f"{len(second)} lines, the original's has {len(first)}"
    for number, (x, y, *more) in enumerate(zip(first, second, *others, strict=True), 1):
        one, other, *repeated = (Line(text, False) for text in (x, y, *more))
        if any(each.shape != one.shape for each in repeated):
            continue
        pairs = list(zip(one.numbers, other.numbers, strict=False))
        steady = [all(each.numbers[i] == x for each in repeated) for i, (x, _) in enumerate(pairs)]
        same = one.shape == other.shape and len(one.numbers) == len(other.numbers)
        if not same or not all(agree(*pair, about.tolerance) for pair, sure in zip(pairs, steady, strict=True) if sure):
            return f"line {number} is {y.strip()[:80]!r}, the original's {x.strip()[:80]!r}"
    return ""


def _arrays(a: dict[str, Any], b: dict[str, Any], about: About) -> str:
    if a.keys() != b.keys():
        return f"it holds {', '.join(b)}, the original's {', '.join(a)}"
    for key, first in a.items():
        second, name = b[key], f"{key}: " if key else ""
        if first.shape != second.shape:
            return f"{name}shape {list(second.shape)}, the original's is {list(first.shape)}"
        if first.tobytes() == second.tobytes():
            continue
        if about.alone or first.dtype.kind not in "fiub":
            return f"{name}other values than the original's"
        if first.dtype.kind == "f":
            worst = float(abs(first - second).max() / max(float(abs(first).max()), 1e-30))
            if not worst <= 10 * about.tolerance:
                return f"{name}values are apart by {worst:.1e} of the largest"
        elif float((first != second).mean()) > _FLIPPED:
            return f"{name}{int((first != second).sum())} of {first.size} values differ"
    return ""
