"""
Names of files that no other process has: made of the rows of a process's own shard, or of what no two processes get.

A name that depends on itself, in a loop or a function that calls itself, is as good as what it begins with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.call_binding import argument_for
from ..analysis.dataflow.callees import method_name, outside_name
from ..analysis.dataflow.containers import key_of
from ..analysis.dataflow.values import Unit, origins
from ..analysis.syntax.definitions import unshadowed
from ..analysis.syntax.nodes import keyword
from ..analysis.syntax.walk import children, descendants
from ..facts.roles import Role
from ..facts.torch_api import surroundings
from .program import AuditedProgram

_PLAIN = frozenset(
    "str Path join basename dirname splitext split rsplit strip rstrip lstrip replace removesuffix removeprefix format "
    "lower upper with_suffix with_name joinpath relative_to item int zfill to cpu cuda detach numpy tolist items "
    "values".split()
)
"""Calls that give what they are given, or make a text, a number or a path of it, and nothing else."""
_MOST = 40
"""A name is followed back over at most this many variables, calls and keys."""


class _Way(NamedTuple):
    """What a name was followed back over."""

    over: frozenset[cst.CSTNode] = frozenset()
    """Variables and calls: what leads back to one of them adds nothing to what it begins with."""
    before: frozenset[cst.CSTNode] = frozenset()
    """The same before an attribute or a key: what leads back there may begin with a value that was not seen."""

    def on(self, node: cst.CSTNode) -> _Way:
        return self._replace(over=self.over | {node})

    def past(self, node: cst.CSTNode) -> _Way:
        return _Way(before=self.over | self.before | {node})


def is_own(program: AuditedProgram, unit: Unit, path: cst.CSTNode, way: _Way | None = None) -> bool:
    """Whether a path contains a part of a row that a loop over a sharded loader gives, or a part that is unique."""
    way = way or _Way()
    if path in way.over:
        return True
    if path in way.before or len(way.over) + len(way.before) > _MOST:
        return False
    if isinstance(path, cst.Name):
        binding = unit.names.binding(path)
        definitions = unshadowed(unit.names, binding, path) if binding is not None else ()
        return bool(definitions) and all(_is_defined(program, unit, d, way.on(path)) for d in definitions)
    if isinstance(path, cst.Call):
        return _is_made(program, unit, path, way.on(path))
    if isinstance(path, (cst.Comparison, cst.BooleanOperation, cst.UnaryOperation, cst.Lambda)):
        return False
    if isinstance(path, cst.IfExp):
        return all(is_own(program, unit, side, way) for side in (path.body, path.orelse))
    if isinstance(path, cst.Attribute):
        given = program.tracer.attributes(unit, path)
        if given and all(is_own(program, home, value, way.past(path)) for home, value in given):
            return True
        return is_own(program, unit, path.value, way)
    if isinstance(path, (cst.DictComp, cst.BaseSimpleComp)):
        made = path.value if isinstance(path, cst.DictComp) else path.elt
        return is_own(program, unit, made, way)
    if isinstance(path, cst.Subscript) and (key := _key(path)) is not None:
        stored = list(_stored(program, key))
        if stored and all(is_own(program, home, value, way.past(path)) for home, value in stored):
            return True
    return any(is_own(program, unit, child, way) for child in children(path))


def _is_made(program: AuditedProgram, unit: Unit, call: cst.Call, way: _Way) -> bool:
    """Whether a call returns such a name: it is unique, or made of such a part, by a function of the program too."""
    record = program.state.calls.get(call)
    name = outside_name(record) if record is not None else ""
    if surroundings.unique(name):
        return True
    functions = [f for f in program.reach.called(call) if isinstance(f, cst.FunctionDef)]
    if functions and all(f.name.value != "__init__" for f in functions):
        returned = [
            (program.reach.unit(f), r.value)
            for f in functions
            for r in program.reach.unit(f).names.returns.get(f, ())
            if r.value is not None
        ]
        return bool(returned) and all(is_own(program, home, value, way) for home, value in returned)
    if method_name(call) not in _PLAIN and not surroundings.makes_text(name):
        return False
    return any(is_own(program, unit, child, way) for child in children(call))


def _key(subscript: cst.Subscript) -> str | None:
    """``"name"`` of ``row["name"]``."""
    index = subscript.slice[0].slice if len(subscript.slice) == 1 else None
    return key_of(index.value) if isinstance(index, cst.Index) else None


def _stored(program: AuditedProgram, key: str) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    """What the code that is reached puts under a key: ``{"name": x}``, ``dict(name=x)``, ``row["name"] = x``."""
    for unit in program.reach.units:
        found: list[tuple[cst.CSTNode, cst.BaseExpression]] = []
        for node in unit.names.every(cst.DictElement):
            assert isinstance(node, cst.DictElement)
            found += [(node, node.value)] if key_of(node.key) == key else []
        for call in unit.names.calls:
            value = keyword(call, key) if method_name(call) == "dict" else None
            found += [(call, value)] if value is not None else []
        for target in unit.names.every(cst.AssignTarget):
            assert isinstance(target, cst.AssignTarget)
            assign = unit.names.parents.get(target)
            if (
                isinstance(target.target, cst.Subscript)
                and isinstance(assign, cst.Assign)
                and _key(target.target) == key
            ):
                found.append((target, assign.value))
        yield from ((unit, value) for node, value in found if unit.names.function(node) in program.reached)


def _is_defined(program: AuditedProgram, unit: Unit, definition: cst.CSTNode, way: _Way) -> bool:
    """Whether a variable gets such a part: as the target of a loop, computed from one, or from every caller."""
    for around in (definition, *unit.names.ancestors(definition)):
        if isinstance(around, cst.Param):
            return _is_given(program, unit, around, way)
        if isinstance(around, (cst.For, cst.CompFor)):
            return _gives_rows(program, unit, around, definition, way)
        if isinstance(around, (cst.Assign, cst.AnnAssign, cst.NamedExpr)) and around.value is not None:
            return is_own(program, unit, around.value, way)
        if isinstance(around, cst.AugAssign):
            return any(is_own(program, unit, side, way) for side in (around.target, around.value))
        if isinstance(around, cst.WithItem):
            return is_own(program, unit, around.item, way)
        if around is not definition and not isinstance(
            around, (cst.Element, cst.Tuple, cst.List, cst.AssignTarget, cst.StarredElement, cst.AsName)
        ):
            return False
    return False


def _is_given(program: AuditedProgram, unit: Unit, param: cst.Param, way: _Way) -> bool:
    """Whether every call gives a part of a row to a parameter."""
    function = unit.names.parents.get(unit.names.parents.get(param, param))
    if not isinstance(function, cst.FunctionDef):
        return False
    if function.name.value == "__getitem__":
        return _is_read_once(program, unit, function)
    if function in program.state.escaped:
        return False
    given = [(site.unit, argument_for(unit, function, param, site)) for site in program.sites(function)]
    return bool(given) and all(value is not None and is_own(program, home, value, way) for home, value in given)


def _is_read_once(program: AuditedProgram, unit: Unit, function: cst.FunctionDef) -> bool:
    """Whether each row of a data set is read by one process: none of its loaders gives all rows to all processes."""
    klass = next(unit.names.enclosing(function, cst.ClassDef), None)
    loaders = program.loaders_reading(klass) if isinstance(klass, cst.ClassDef) else []
    return bool(loaders) and all(program.is_sharded(loader) is not False for loader in loaders)


def _gives_rows(
    program: AuditedProgram, unit: Unit, loop: cst.For | cst.CompFor, definition: cst.CSTNode, way: _Way
) -> bool:
    """Whether what a loop gives to one of its targets is rows of a sharded loader, or a part of them, and no count."""
    target: cst.CSTNode = loop.target
    iterated: cst.BaseExpression = loop.iter
    while isinstance(iterated, cst.Call) and iterated.args:
        name = method_name(iterated)
        if name not in ("enumerate", "zip") and origins(program.state.values.get(iterated), Role.LOADER):
            break
        parts = [element.value for element in target.elements] if isinstance(target, (cst.Tuple, cst.List)) else []
        place = next((i for i, part in enumerate(parts) if definition in set(descendants(part))), None)
        if name == "enumerate" and len(parts) == 2:
            if place == 0:
                return False
            target, iterated = parts[1], iterated.args[0].value
        elif name == "zip" and place is not None and place < len(iterated.args):
            target, iterated = parts[place], iterated.args[place].value
        elif name in ("enumerate", "zip", "range"):
            return False
        else:
            iterated = iterated.args[0].value  # a progress bar, or a call that skips batches
    if isinstance(iterated, cst.Call) and method_name(iterated) == "items" and isinstance(target, cst.Tuple):
        if definition in set(descendants(target.elements[0])):
            return False
    loaders = origins(program.state.values.get(iterated), Role.LOADER)
    if loaders:
        return all(program.is_sharded(loader) is True for loader in loaders)
    return is_own(program, unit, iterated, way)
