"""
By what paths are known to be the same: their text, what their variables were given, whose attribute they are, and the
call that made them, through whatever returns or holds them in between.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import product

import libcst as cst

from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.constant_values import JOINS_PATHS
from ..dataflow.modules import imported, unit_named
from ..dataflow.records import record_fields
from ..dataflow.trails import Trail, traces
from ..dataflow.values import State, Unit, Unknown
from ..syntax.definitions import bindings_value
from ..syntax.nodes import entry_key
from ..syntax.scopes import Binding

_MOST = 16
"""A path with more spellings than that is known by its text alone."""
_NO_PATHS = frozenset({"None", "True", "False"})


class PathNames:
    """Answers for one program."""

    def __init__(self, state: State, reach: Reach) -> None:
        self.state, self.reach = state, reach
        self._sure: dict[cst.BaseExpression, set[Hashable]] = {}
        self._kept: dict[str, list[tuple[Unit, cst.BaseExpression, cst.BaseExpression]]] = {}
        """By the name of an attribute, or a key: the module, the object that has it, and what that is given."""
        for unit in reach.units:
            for holder, name, value in self._parts_given(unit):
                self._kept.setdefault(name, []).append((unit, holder, value))

    def _parts_given(self, unit: Unit) -> Iterator[tuple[cst.BaseExpression, str, cst.BaseExpression]]:
        """What the code of a module gives the attributes of objects, and the keys of dictionaries."""
        for node in unit.names.every(cst.Assign):
            for target, value in _pairs(node):
                if (part := _part(target)) is not None:
                    yield *part, value
        for mapping in unit.names.every(cst.Dict):
            for element in mapping.elements:
                if isinstance(element, cst.DictElement) and (word := _word(element.key)):
                    yield mapping, word, element.value
        for call in unit.names.calls:
            yield from ((call, name, value) for name, value in self._made_with(call))

    def of(self, unit: Unit, path: cst.BaseExpression) -> set[Hashable]:
        """The names of a path, of which it shares one with another that may be the same."""
        return set() if self.is_open(path) else {text(unit, path), *self.sure(unit, path)}

    def is_open(self, path: cst.BaseExpression) -> bool:
        """Whether this is an open file, and no path: the path of it is what opened it."""
        return bool(traces(self.state.values.get(path), Trail.FILE))

    def sure(self, unit: Unit, path: cst.BaseExpression) -> set[Hashable]:
        """Those of its names that are not its text alone: which variables it is made of, and what these were given."""
        if path not in self._sure:
            self._sure[path] = self._names(unit, path, set())
        return self._sure[path]

    def _names(self, unit: Unit, path: cst.CSTNode, seen: set[Hashable]) -> set[Hashable]:
        """
        Names that mean the same in all modules; of an open file those of its path: two files may be called ``f``.

        ``seen``: the variables and attributes looked into so far.
        """
        opened = [trace.node for trace in traces(self.state.values.get(path), Trail.FILE)]
        if opened:
            calls = (call for call in opened if isinstance(call, cst.Call) and call.args and call in self.state.calls)
            given = ((self.state.calls[call].unit, call.args[0].value) for call in calls)
            return {name for at, value in given if value not in seen for name in self._names(at, value, seen | {value})}
        return {*self._spelled(unit, path, seen), *(("made", call) for call in self._makers(path))}

    def _makers(self, path: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The calls outside the program that make a path: ``os.path.join`` in a helper that returns it in a dict."""
        slot = self.state.values.get(path)
        for thing in slot.things if slot is not None else ():
            if isinstance(thing, Unknown) and thing.qualified in JOINS_PATHS:
                yield thing.node

    def _spelled(self, unit: Unit, path: cst.CSTNode, seen: set[Hashable]) -> set[Hashable]:
        if isinstance(path, cst.SimpleString):
            return {("text", path.evaluated_value)}
        if isinstance(path, cst.Name):
            return set(self._of_variable(unit, path, seen))
        if _part(path) is not None:
            return set(self._of_part(unit, path, seen))
        if isinstance(path, cst.Call) and (given := list(self.returned(path))):
            return {name for at, value in given if value not in seen for name in self._names(at, value, seen | {value})}
        parts = _parts(self.state, path)
        if parts is None:
            return set()
        if parts[0] in JOINS_PATHS and len(parts[1]) == 1 and not isinstance(parts[1][0], str):
            return self._names(unit, parts[1][0], seen)  # `str(path)`: the same path
        kind, below = parts
        spellings = [[part] if isinstance(part, str) else list(self._names(unit, part, seen)) for part in below]
        count = 1
        for one in spellings:
            count *= len(one)
        return {(kind, *one) for one in product(*spellings)} if count <= _MOST else set()

    def definition(self, unit: Unit, name: cst.Name) -> tuple[Unit, Binding] | None:
        """A variable in the module that gives it its value."""
        return _definition(self.state, unit, unit.names.binding(name))

    def given(self, unit: Unit, path: cst.BaseExpression) -> Iterator[tuple[Unit, cst.BaseExpression]]:
        """What the program gives a variable, an attribute or a key, and the module of each; the default of a parameter
        too, unless all calls give another value."""
        if (part := _part(path)) is not None:
            holders = self._things(part[0])
            for at, kept, value in self._kept.get(part[1], ()):
                if not holders.isdisjoint(self._things(kept)):
                    yield at, value
        elif not isinstance(path, cst.Name):
            return
        elif (found := self.definition(unit, path)) is not None:
            home, binding = found
            yield from ((home, value) for value in bindings_value(home.names, binding))
            yield from self.reach.given(binding)
            params = [d for d in binding.definitions if isinstance(d, cst.Param) and self.reach.takes_default(home, d)]
            yield from ((home, param.default) for param in params if param.default is not None)

    def _made_with(self, call: cst.Call) -> Iterator[tuple[str, cst.BaseExpression]]:
        """The attributes of what a call makes that are what it is given: ``Namespace(path=path)``, a data class."""
        record = self.state.calls.get(call)
        if record is None or self.reach.called(call):
            return
        fields = () if any(arg.star for arg in call.args) else record_fields(self.state, record)
        for at, arg in enumerate(call.args):
            if arg.keyword is not None:
                yield arg.keyword.value, arg.value
            elif at < len(fields):
                yield fields[at], arg.value

    def returned(self, call: cst.Call) -> Iterator[tuple[Unit, cst.BaseExpression]]:
        """What the functions of the program that a call reaches return, and the module of each."""
        for function in self.reach.called(call):
            unit = self.reach.unit(function)
            if isinstance(function, cst.Lambda):
                yield unit, function.body
            for node in unit.names.returns.get(function, ()):
                yield from [(unit, node.value)] if node.value is not None else ()

    def _of_variable(self, unit: Unit, name: cst.Name, seen: set[Hashable]) -> Iterator[Hashable]:
        found = self.definition(unit, name)
        if found is None:
            if name.value not in _NO_PATHS:
                yield "unbound", name.value
            return
        _, binding = found
        if self.is_open(name):
            return
        yield binding
        if binding in seen:
            return
        seen.add(binding)
        for at, value in self.given(unit, name):
            yield from self._names(at, value, seen)

    def _of_part(self, unit: Unit, path: cst.CSTNode, seen: set[Hashable]) -> Iterator[Hashable]:
        """The names of an attribute of an object, or of what a dictionary has by a key."""
        part = _part(path)
        names = {(holder, part[1]) for holder in self._things(part[0])} if part is not None else set()
        yield from names
        if names <= seen or part is None or not isinstance(path, cst.BaseExpression):
            return
        seen |= names
        for at, value in self.given(unit, path):
            yield from self._names(at, value, seen)

    def _things(self, holder: cst.CSTNode) -> set[Hashable]:
        slot = self.state.values.get(holder)
        return set(slot.things if slot is not None else ())


def _part(node: cst.CSTNode) -> tuple[cst.BaseExpression, str] | None:
    """The object and the name of ``object.name``, and of ``object["name"]``."""
    if isinstance(node, cst.Attribute):
        return node.value, node.attr.value
    word = entry_key(node) if isinstance(node, cst.Subscript) else ""
    return (node.value, word) if isinstance(node, cst.Subscript) and word else None


def _word(key: cst.BaseExpression) -> str:
    value = key.evaluated_value if isinstance(key, cst.SimpleString) else None
    return value if isinstance(value, str) else ""


def _pairs(assign: cst.Assign) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """The targets of an assignment with what each is given: ``self.a, self.b = a, b``."""
    value = assign.value
    for target in (each.target for each in assign.targets):
        if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            yield from zip((e.value for e in target.elements), (e.value for e in value.elements), strict=False)
        else:
            yield target, value


def text(unit: Unit, node: cst.BaseExpression) -> tuple[str, str]:
    """A path by its text: a literal one is the same in all modules."""
    return "" if isinstance(node, cst.SimpleString) else unit.name, unit.names.module.code_for_node(node)


def _definition(state: State, unit: Unit, binding: Binding | None) -> tuple[Unit, Binding] | None:
    """A variable in the module that gives it its value."""
    for _ in range(_MOST):
        aliases = [d for d in binding.definitions if isinstance(d, cst.ImportAlias)] if binding is not None else []
        if binding is None or not aliases:
            break
        module, _, name = imported(unit, aliases[-1]).rpartition(".")
        home = unit_named(state, module)
        if home is None:
            return None
        unit, binding = home, home.names.scope.bindings.get(name)
    return None if binding is None else (unit, binding)


def _parts(state: State, path: cst.CSTNode) -> tuple[str, list[cst.CSTNode | str]] | None:
    """How a path is put together, and of what."""
    if isinstance(path, cst.ConcatenatedString):
        return "text", [path.left, path.right]
    if isinstance(path, cst.FormattedString):
        return "text", [
            part.expression if isinstance(part, cst.FormattedStringExpression) else getattr(part, "value", "")
            for part in path.parts
        ]
    if isinstance(path, cst.BinaryOperation):
        return type(path.operator).__name__, [path.left, path.right]
    if isinstance(path, cst.Call) and not any(arg.star for arg in path.args):
        given: list[cst.CSTNode | str] = [arg.value for arg in path.args]
        called = outside_name(state.calls[path]) if path in state.calls else ""
        if called:
            return called, given
        if isinstance(path.func, cst.Attribute):
            return method_name(path), [path.func.value, *given]
    return None


def around(names: Iterable[Hashable]) -> set[Hashable]:
    """The names of the folders around a path, by its own: ``out`` and ``out/a`` of ``os.path.join(out, "a", "b")``."""
    kinds = (*JOINS_PATHS, "Divide")
    joined = [name for name in names if isinstance(name, tuple) and len(name) > 2 and name[0] in kinds]
    return {name[1] if end == 2 else name[:end] for name in joined for end in range(2, len(name))}
