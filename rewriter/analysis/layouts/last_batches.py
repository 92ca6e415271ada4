"""
Whether a loader leaves out a last batch that is not full: its `drop_last`, asked for every value that it may have.

A variable that is set in several branches, and a parameter that calls give different values, may be each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.roles import Origin
from ..dataflow.call_graph import Reach
from ..dataflow.values import Unit
from ..syntax.definitions import bindings_value, seen_values, unshadowed
from ..syntax.nodes import keyword

_POSITION = 8
"""Of `drop_last` among the arguments of torch's `DataLoader`."""
_OPEN = frozenset({True, False})
"""What is not known."""


def always_drops_last(reach: Reach, loaders: Iterable[Origin]) -> bool:
    """Whether all of some loaders certainly leave out what does not fill a batch."""
    found = [drops_last(reach, loader) for loader in loaders]
    return bool(found) and all(answers == {True} for answers in found)


def drops_last(reach: Reach, loader: Origin) -> frozenset[bool]:
    """What the `drop_last` of a loader is, in whatever run; both where that is not known."""
    unit = next((unit for unit in reach.units if loader.node in unit.names.parents), None)
    if unit is None or not isinstance(loader.node, cst.Call):
        return frozenset({False})
    given = option(loader.node)
    if given is not None:
        return _Answers(reach).of(unit, given)
    spread = [arg.value for arg in loader.node.args if arg.star == "**"]
    return frozenset().union(*(_spread(reach, unit, value) for value in spread)) or frozenset({False})


def option(made: cst.CSTNode) -> cst.BaseExpression | None:
    """What the call that makes a loader gives as its `drop_last`."""
    return keyword(made, "drop_last", _POSITION) if isinstance(made, cst.Call) else None


def _spread(reach: Reach, unit: Unit, options: cst.BaseExpression) -> frozenset[bool]:
    """What the dictionaries that a call spreads have as `drop_last`, as far as they are written out."""
    found: frozenset[bool] = frozenset()
    for value in seen_values(unit.names, options) if isinstance(options, cst.Name) else [options]:
        entries = value.elements if isinstance(value, cst.Dict) else ()
        given = [e.value for e in entries if isinstance(e, cst.DictElement) and _is_key(e.key)]
        if isinstance(value, cst.Call) and (named := keyword(value, "drop_last")) is not None:
            given.append(named)
        found |= _Answers(reach).of(unit, given[-1]) if given else {False}
    return found


def _is_key(key: cst.BaseExpression) -> bool:
    return isinstance(key, cst.SimpleString) and key.evaluated_value == "drop_last"


class _Answers:
    """Evaluates one condition by constants, through variables and parameters."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self._asked = set[cst.CSTNode]()

    def of(self, unit: Unit, node: cst.BaseExpression) -> frozenset[bool]:
        """What an expression may be."""
        if isinstance(node, cst.Integer):
            return frozenset({bool(node.evaluated_value)})
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            return frozenset(not answer for answer in self.of(unit, node.expression))
        if isinstance(node, cst.IfExp):
            return self.of(unit, node.body) | self.of(unit, node.orelse)
        if not isinstance(node, cst.Name):
            return _OPEN
        if node.value in ("True", "False", "None"):
            return frozenset({node.value == "True"})
        if node in self._asked:
            return _OPEN
        self._asked.add(node)
        return frozenset().union(*self._defined(unit, node)) or _OPEN

    def _defined(self, unit: Unit, name: cst.Name) -> Iterator[frozenset[bool]]:
        """What each of the definitions that a read can see gives to its variable."""
        binding = unit.names.binding(name)
        for definition in unshadowed(unit.names, binding, name) if binding is not None else ():
            assert binding is not None
            if isinstance(definition, cst.Param):
                yield from (self.of(home, value) for home, value in self.reach.given(binding))
                if definition.default is not None:
                    yield self.of(unit, definition.default)
                continue
            values = bindings_value(unit.names, binding, [definition])
            yield from (self.of(unit, value) for value in values)
            if not values:
                yield _OPEN
