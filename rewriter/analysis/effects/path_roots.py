"""Where a path starts: the folder, or the variable, that paths into one folder have in common."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.torch_api import surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.command_lines import option
from ..dataflow.values import State, Unit
from ..syntax.definitions import bindings_value
from ..syntax.nodes import dotted, keyword, text_or_value


class Root(NamedTuple):
    """Where a path may start."""

    text: str
    named: bool = False
    """It is a variable, and not the folder itself."""


class Roots:
    """Answers for one program."""

    def __init__(self, state: State, reach: Reach) -> None:
        self.state, self.reach = state, reach
        self._kept: dict[str, list[tuple[Unit, cst.BaseExpression]]] = {}
        self._options: dict[str, list[tuple[Unit, cst.BaseExpression]]] = {}
        for unit in reach.units:
            for node in unit.names.every(cst.Assign):
                kept = [target.target for target in node.targets if isinstance(target.target, cst.Attribute)]
                texts = [*map(dotted, kept), *_of_class(unit, node)]
                for text in texts:
                    self._kept.setdefault(text, []).append((unit, node.value))
            for call in unit.names.calls:
                default, name = keyword(call, "default"), option(call)
                if default is not None and name is not None:
                    self._options.setdefault(name, []).append((unit, default))

    def of(self, unit: Unit, path: cst.BaseExpression, *, file: bool = True) -> set[Root]:
        """The folders, as written, or the variables from which a path may start; empty where nothing can be said.
        ``file``: it is the path of a file, and not of a folder."""
        return set(self._roots(unit, path, set(), whole=file))

    def _roots(self, unit: Unit, path: cst.CSTNode, seen: set[Hashable], *, whole: bool) -> Iterator[Root]:
        """``whole``: nothing is joined to the path, so that its last part is the file."""
        if isinstance(path, cst.SimpleString) and isinstance(text := path.evaluated_value, str):
            yield from _of_text(text, whole=whole)
        elif isinstance(path, cst.ConcatenatedString):
            yield from self._roots(unit, path.left, seen, whole=False)
        elif isinstance(path, cst.FormattedString):
            yield from self._joined(unit, [text_or_value(part) for part in path.parts], seen)
        elif isinstance(path, cst.BinaryOperation):
            if isinstance(path.operator, cst.Modulo):
                values = [e.value for e in path.right.elements] if isinstance(path.right, cst.Tuple) else [path.right]
                yield from self._filled(unit, path.left, "%", values, seen)
            else:
                yield from self._roots(unit, path.left, seen, whole=False)
        elif isinstance(path, cst.Call):
            yield from self._called(unit, path, seen, whole=whole)
        elif isinstance(path, cst.Name):
            yield from self._named(unit, path, seen, whole=whole)
        elif isinstance(path, cst.Attribute):
            parent = path.attr.value == "parent"
            yield from self._roots(unit, path.value, seen, whole=whole) if parent else self._kept_in(path, seen, whole)

    def _kept_in(self, path: cst.Attribute, seen: set[Hashable], whole: bool) -> Iterator[Root]:
        """Where an attribute starts: as itself, with what the program gives it, and with the default of an option."""
        name = dotted(path)
        if name:
            yield Root(name, named=True)
        if name and name not in seen:
            seen.add(name)
            options = self._options.get(path.attr.value, []) if isinstance(path.value, cst.Name) else []
            for unit, value in (*self._kept.get(name, ()), *options):
                yield from self._roots(unit, value, seen, whole=whole)

    def _called(self, unit: Unit, call: cst.Call, seen: set[Hashable], *, whole: bool) -> Iterator[Root]:
        record, given = self.state.calls.get(call), [arg.value for arg in call.args if not arg.star]
        if method_name(call) == "format" and isinstance(call.func, cst.Attribute):
            yield from self._filled(unit, call.func.value, "{", given, seen)
        elif given and record is not None and surroundings.keeps_path(outside_name(record)):  # os.path.join, Path, str
            yield from self._roots(unit, given[0], seen, whole=whole and len(given) == 1)
        elif isinstance(call.func, cst.Attribute) and (record is None or not outside_name(record)):
            yield from self._roots(unit, call.func.value, seen, whole=False)  # a method of a text or a path

    def _filled(
        self, unit: Unit, text: cst.CSTNode, mark: str, values: list[cst.BaseExpression], seen: set[Hashable]
    ) -> Iterator[Root]:
        """A text with places that are filled: if it starts with one, so does what comes there."""
        start = text.evaluated_value if isinstance(text, cst.SimpleString) else None
        if isinstance(start, str) and start.startswith(mark):
            yield from self._roots(unit, values[0], seen, whole=False) if values else ()
        else:
            yield from self._roots(unit, text, seen, whole=True)

    def _joined(self, unit: Unit, parts: list[cst.CSTNode | str], seen: set[Hashable]) -> Iterator[Root]:
        if not parts:
            return
        if isinstance(first := parts[0], str):
            yield from _of_text(first, whole=True)
        else:
            yield from self._roots(unit, first, seen, whole=False)

    def _named(self, unit: Unit, name: cst.Name, seen: set[Hashable], *, whole: bool) -> Iterator[Root]:
        binding = unit.names.binding(name)
        if binding is None:
            yield Root(name.value, named=True)
            return
        if binding in seen:
            return
        seen.add(binding)
        values: list[tuple[Unit, cst.BaseExpression]] = [(unit, v) for v in bindings_value(unit.names, binding)]
        values += self.reach.given(binding)
        found = {root for at, value in values for root in self._roots(at, value, seen, whole=whole)}
        yield from found or {Root(name.value, named=True)}


def _of_class(unit: Unit, node: cst.Assign) -> Iterator[str]:
    """By what texts the methods of a class, and others, read what its body sets: ``self.folder``, ``Photos.folder``."""
    klass = next(iter(unit.names.enclosing(node, cst.ClassDef, cst.FunctionDef)), None)
    if isinstance(klass, cst.ClassDef):
        names = [target.target.value for target in node.targets if isinstance(target.target, cst.Name)]
        yield from (f"{of}.{name}" for of in ("self", "cls", klass.name.value) for name in names)


def _of_text(text: str, *, whole: bool) -> Iterable[Root]:
    """The first folder of a path; a bare name that is a file lies in the folder of the run."""
    first, slash, _ = text.removeprefix("./").partition("/")
    return (Root(first if slash or not whole else "."),)
