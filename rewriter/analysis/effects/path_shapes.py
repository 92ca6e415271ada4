"""How paths look: their fixed text, with gaps where only a run knows it. Two that can look alike may be one file."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from string import Formatter
from typing import NamedTuple

import libcst as cst

from ..dataflow.callees import method_name, outside_name
from ..dataflow.constant_values import JOINS_PATHS
from ..dataflow.values import Unit
from ..syntax.nodes import text_or_value
from .path_names import PathNames

_MOST = 16
"""A path that may look in more ways than that is not told by its look."""
_GAP, _PERCENT = "\0", "\1"
_SPECIFIER = re.compile(r"(%[-+ #0-9.]*[a-zA-Z])")


class PathShape(NamedTuple):
    """One look of a path."""

    starts: frozenset[Hashable]
    """The names of the variable that it starts with; empty where it starts with text."""
    text: str
    """What follows, with a mark for each gap."""

    def meets(self, other: PathShape) -> bool:
        """Whether two paths that look like this may be one. A gap is filled with anything within a folder."""
        if bool(self.starts) != bool(other.starts) or (self.starts and self.starts.isdisjoint(other.starts)):
            return False
        return _fit(self.text, other.text)

    @property
    def is_fixed(self) -> bool:
        """Whether it is known as a whole."""
        return not self.starts and _GAP not in self.text and "*" not in self.text

    def is_below(self, folder: PathShape) -> bool:
        """Whether a path is in a folder, or below it, both known as wholes."""
        above = folder.text.rstrip("/")
        if above in ("", "."):
            return self.text.startswith("/") is bool(folder.text.startswith("/"))
        return self.text == above or self.text.startswith(f"{above}/")


class _Gap(NamedTuple):
    """What only a run knows."""

    names: frozenset[Hashable] = frozenset()
    counted: bool = False
    """A loop gives it one value after the other."""


_Parts = tuple[str | _Gap, ...]
_UNKNOWN: _Parts = (_Gap(),)


class PathShapes:
    """Answers for one program."""

    def __init__(self, names: PathNames) -> None:
        self.names, self.reach, self.state = names, names.reach, names.state

    def of(self, unit: Unit, path: cst.BaseExpression) -> frozenset[PathShape]:
        """How a path may look; empty where nothing of it is known."""
        looks = self._looks(unit, path, frozenset())
        return frozenset(shape for parts in looks if (shape := _shape(parts)) is not None)

    def _looks(self, unit: Unit, path: cst.CSTNode, seen: frozenset[Hashable]) -> list[_Parts]:
        """``seen``: the variables and calls looked into so far."""
        if isinstance(path, cst.SimpleString):
            return [(path.evaluated_value,)] if isinstance(path.evaluated_value, str) else [_UNKNOWN]
        if isinstance(path, (cst.Name, cst.Attribute, cst.Subscript)):
            return self._kept(unit, path, seen)
        if isinstance(path, cst.Call) and path not in seen and (given := list(self.names.returned(path))):
            return [look for at, value in given for look in self._looks(at, value, seen | {path})]
        joined = self._joined(path)
        if joined is None:
            return [_UNKNOWN]
        choices = [[(part,)] if isinstance(part, (str, _Gap)) else self._looks(unit, part, seen) for part in joined]
        count = 1
        for each in choices:
            count *= len(each)
        return [tuple(p for parts in one for p in parts) for one in product(*choices)] if count <= _MOST else [_UNKNOWN]

    def _kept(
        self, unit: Unit, path: cst.Name | cst.Attribute | cst.Subscript, seen: frozenset[Hashable]
    ) -> list[_Parts]:
        """The looks of what a variable, an attribute or a key is given."""
        home, binding = unit, unit.names.binding(path) if isinstance(path, cst.Name) else None
        if isinstance(path, cst.Name):
            home, binding = self.names.definition(unit, path) or (unit, binding)
        key: Hashable = binding if binding is not None else unit.names.module.code_for_node(path)
        values = list(self.names.given(unit, path)) if key not in seen else []
        parents = [home.names.parents.get(d) for d in binding.definitions] if binding is not None else []
        if any(isinstance(parent, cst.AugAssign) for parent in parents):
            values = []
        looks = [look for at, value in values for look in self._looks(at, value, seen | {key})]
        known = [look for look in looks if look != _UNKNOWN]
        if looks and len(known) == len(looks) <= _MOST:
            return known
        counted = bool(parents) and all(isinstance(parent, (cst.For, cst.CompFor)) for parent in parents)
        return [(_Gap(frozenset(self.names.of(unit, path)), counted),)]

    def _joined(self, path: cst.CSTNode) -> Sequence[cst.CSTNode | str | _Gap] | None:
        """What a text or a path is put together from; None for what is no text."""
        if isinstance(path, cst.ConcatenatedString):
            return [path.left, path.right]
        if isinstance(path, cst.FormattedString):
            return [text_or_value(part) for part in path.parts]
        if isinstance(path, cst.BinaryOperation):
            if isinstance(path.operator, cst.Modulo):
                return _filled(path.left, path.right)
            if isinstance(path.operator, (cst.Add, cst.Divide)):
                return [path.left, *("/" * isinstance(path.operator, cst.Divide)), path.right]
        if isinstance(path, cst.Call) and not any(arg.star for arg in path.args):
            given = [arg.value for arg in path.args]
            called = outside_name(self.state.calls[path]) if path in self.state.calls else ""
            if called in JOINS_PATHS and given:
                return [part for each in given for part in ("/", each)][1:]
            if method_name(path) == "format" and isinstance(path.func, cst.Attribute):
                return _formatted(path.func.value, path.args)
        return None


def _filled(text: cst.BaseExpression, given: cst.BaseExpression) -> Sequence[cst.CSTNode | str | _Gap] | None:
    """The parts of ``"%s/%d.png" % (folder, epoch)``."""
    if not isinstance(text, cst.SimpleString) or not isinstance(text.evaluated_value, str):
        return None
    values = iter([e.value for e in given.elements] if isinstance(given, cst.Tuple) else [given])
    parts = _SPECIFIER.split(text.evaluated_value.replace("%%", _PERCENT))
    return [next(values, _Gap()) if index % 2 else part.replace(_PERCENT, "%") for index, part in enumerate(parts)]


def _formatted(text: cst.BaseExpression, given: Sequence[cst.Arg]) -> Sequence[cst.CSTNode | str | _Gap] | None:
    """The parts of ``"{}/{name}.png".format(folder, name=name)``."""
    if not isinstance(text, cst.SimpleString) or not isinstance(text.evaluated_value, str):
        return None
    values = {arg.keyword.value: arg.value for arg in given if arg.keyword is not None}
    plain = [arg.value for arg in given if arg.keyword is None]
    values |= {str(index): value for index, value in enumerate(plain)}
    found: list[cst.CSTNode | str | _Gap] = []
    counted = 0
    try:
        for literal, field, _, _ in Formatter().parse(text.evaluated_value):
            found.append(literal)
            if field is not None:
                found.append(values.get(field or str(counted), _Gap()))
                counted += not field
    except ValueError:  # a brace that is never closed
        return None
    return found


def _shape(parts: _Parts) -> PathShape | None:
    """The look of a path; None where it starts with what is not known, or is nothing but gaps."""
    text = "".join(part if isinstance(part, str) else _GAP for part in parts)
    first = next((part for part in parts if part), "")
    named = isinstance(first, _Gap) and not first.counted
    text = re.sub("/+", "/", re.sub(f"{_GAP}+", _GAP, text)).removeprefix("./")
    if isinstance(first, _Gap) and named:
        return PathShape(first.names, text[1:]) if first.names else None
    return PathShape(frozenset(), text) if text.strip(_GAP) else None


def _fit(left: str, right: str) -> bool:
    """Whether two texts can be one when their gaps are filled."""
    pending, seen = [(0, 0)], {(0, 0)}
    while pending:
        at, by = pending.pop()
        if (at, by) == (len(left), len(right)):
            return True
        for step in _steps(left[at : at + 1], right[by : by + 1]):
            place = (at + step[0], by + step[1])
            if place not in seen:
                seen.add(place)
                pending.append(place)
    return False


def _steps(one: str, other: str) -> Iterator[tuple[int, int]]:
    """How far two texts go on together: a gap ends, or takes a sign of the other text."""
    if _GAP in (one, other):
        yield (1, 0) if one == _GAP else (0, 1)
        taken = other if one == _GAP else one
        if taken and taken != "/":
            yield (0, 1) if one == _GAP else (1, 0)
    elif one and one == other:
        yield 1, 1
