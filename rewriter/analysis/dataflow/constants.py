"""The constants that an expression may be, and what is known of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Text(NamedTuple):
    """A text, or the end of one."""

    end: str
    whole: bool = True


Value = Text | int | float | bool | None
Values = frozenset[Value] | None
"""What an expression may be; None if that is not known."""
MOST = 8
"""At most this many values of an expression, and this many functions inside one another."""


def few(values: Values) -> Values:
    """None where there are too many values, or none."""
    return values if values is not None and 0 < len(values) <= MOST else None


def union(several: Iterable[Values]) -> Values:
    """All values of several expressions; None if those of one are not known."""
    found: set[Value] = set()
    for values in several:
        if values is None:
            return None
        found |= values
    return frozenset(found)


def each_of(function: Callable[[Value], Values], values: Values) -> Values:
    """What a function gives for each of some values."""
    return union(map(function, values)) if values is not None else None


def is_true(value: Value) -> Values:
    """Whether a value is true as a condition."""
    if isinstance(value, Text):
        return frozenset({bool(value.end)}) if value.whole or value.end else None
    return frozenset({bool(value)})


def ending(value: Value) -> Values:
    """What is put before a text is not known."""
    return frozenset({Text(value.end, False)}) if isinstance(value, Text) else None


def last_part(value: Value) -> Values:
    """The last part of a path."""
    if not isinstance(value, Text):
        return None
    _, slash, tail = value.end.rpartition("/")
    return frozenset({Text(tail, value.whole or bool(slash))})


def ends_in(value: Value, end: Value) -> Values:
    """Whether a text ends in another."""
    if not isinstance(value, Text) or not isinstance(end, Text) or not end.whole:
        return None
    if value.end.endswith(end.end):
        return frozenset({True})
    return frozenset({False}) if value.whole or not end.end.endswith(value.end) else None


def is_same(one: Value, other: Value) -> bool | None:
    """Whether two values are equal; None if that is unknown."""
    if isinstance(one, Text) and isinstance(other, Text):
        if one.whole and other.whole:
            return one.end == other.end
        short, long = sorted((one.end, other.end), key=len)
        return None if long.endswith(short) else False
    return type(one) is type(other) and one == other
