"""Methods that a program asks for by a text: ``getattr(callback, event)(engine)``, ``getattr(self, f"run_{mode}")``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from ..syntax.definitions import bindings_value
from ..syntax.nodes import dotted, keyword, positional
from .values import Klass, State, Unit

_ANY = ".*"
_DEEPEST = 3


def named_methods(state: State, unit: Unit, name: cst.BaseExpression, klass: Klass) -> list[str]:
    """The methods of a class that a text may name: by what is written out of it, where the function's callers write
    it, too; of a text of which nothing is known all but those that Python calls."""
    pattern = re.compile("|".join(dict.fromkeys(_patterns(state, unit, name, 0))) or _ANY)
    return [word for word in klass.names() if not word.startswith("__") and pattern.fullmatch(word)]


def _patterns(state: State, unit: Unit, node: cst.BaseExpression, depth: int) -> Iterator[str]:
    """What a text may be, as regular expressions."""
    if isinstance(node, cst.SimpleString):
        yield re.escape(str(node.evaluated_value))
    elif isinstance(node, cst.FormattedString):
        yield "".join(_of_part(state, unit, part, depth) for part in node.parts)
    elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        sides = ("|".join(_patterns(state, unit, side, depth)) for side in (node.left, node.right))
        yield "".join(f"(?:{side})" for side in sides)
    elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
        yield _filled(node.left, r"%[^a-zA-Z%]*[a-zA-Z]")
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "format":
        yield _filled(node.func.value, r"\{[^}]*\}")
    elif isinstance(node, cst.IfExp):
        for side in (node.body, node.orelse):
            yield from _patterns(state, unit, side, depth)
    elif isinstance(node, cst.Name) and depth < _DEEPEST:
        found = list(_of_name(state, unit, node, depth + 1))
        yield from found or [_ANY]
    else:
        yield _ANY


def _filled(template: cst.BaseExpression, places: str) -> str:
    """What ``"layer%d" % i`` or ``"layer{}".format(i)`` may be."""
    if not isinstance(template, cst.SimpleString):
        return _ANY
    return _ANY.join(map(re.escape, re.split(places, str(template.evaluated_value))))


def _of_part(state: State, unit: Unit, part: cst.BaseFormattedStringContent, depth: int) -> str:
    if isinstance(part, cst.FormattedStringText):
        return re.escape(part.value)
    if isinstance(part, cst.FormattedStringExpression):
        return f"(?:{'|'.join(_patterns(state, unit, part.expression, depth))})"
    return _ANY


def _of_name(state: State, unit: Unit, node: cst.Name, depth: int) -> Iterator[str]:
    """What a variable may be: by its one assignment, by the list that a loop goes through, by what callers give."""
    names = unit.names
    binding = names.binding(node)
    for definition in binding.definitions if binding is not None else ():
        above = names.parents.get(definition)
        assign = names.parents.get(above) if isinstance(above, cst.AssignTarget) else None
        if isinstance(assign, cst.Assign):
            yield from _patterns(state, unit, assign.value, depth)
        elif isinstance(above, (cst.For, cst.CompFor)) and (listed := _listed(unit, above.iter)) is not None:
            for entry in listed.elements:
                yield from _patterns(state, unit, entry.value, depth)
        elif isinstance(definition, cst.Param):
            yield from _of_callers(state, unit, node, depth)
        else:
            yield _ANY


def _listed(unit: Unit, node: cst.BaseExpression) -> cst.List | cst.Tuple | cst.Set | None:
    """The list that is written out, there or where the one assignment of its variable is."""
    if isinstance(node, cst.Name):
        binding = unit.names.binding(node)
        values = list(bindings_value(unit.names, binding)) if binding is not None else []
        node = values[0] if binding is not None and len(values) == len(binding.definitions) == 1 else node
    return node if isinstance(node, (cst.List, cst.Tuple, cst.Set)) else None


def _of_callers(state: State, unit: Unit, node: cst.Name, depth: int) -> Iterator[str]:
    """What the calls of a function's name give it for a parameter; more than what it is given where another function
    has that name."""
    function = unit.names.function(node)
    if not isinstance(function, cst.FunctionDef):
        yield _ANY
        return
    places = [param.name.value for param in positional(function)]
    scope = unit.names.within.get(function)
    method = scope is not None and isinstance(scope.node, cst.ClassDef)
    place = places.index(node.value) - int(method) if node.value in places else None
    for other in state.units.values():
        for call in other.names.calls:
            if dotted(call.func).rpartition(".")[2] == function.name.value:
                given = keyword(call, node.value, place)
                yield from _patterns(state, other, given, depth) if given is not None else [_ANY]
