"""Switches of a script, ``args.amp``: the same condition where the accelerator is made as where it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import libcst as cst

from ...facts.roles import Origin
from ..dataflow.call_binding import argument_of
from ..dataflow.call_graph import Code, Reach
from ..dataflow.values import State, Unit, Unknown
from ..syntax.definitions import bindings_value
from ..syntax.nodes import parameters, positional
from ..syntax.scopes import Binding

_DEEPEST = 6
"""Calls through which a switch is followed."""


class Switch(NamedTuple):
    """A condition of the script's, and whether it turns something on."""

    unit: Unit
    test: cst.BaseExpression
    on: bool = True


class Known(NamedTuple):
    """An expression as the accelerator's home can write it."""

    text: str
    names: frozenset[str]
    """The names that the text reads."""


class Switches:
    """Reads switches for one place where the accelerator may be made."""

    def __init__(self, state: State, reach: Reach, code: Code) -> None:
        self.state, self.reach, self.code = state, reach, code
        self.scope = reach.unit(code).names.scopes[code]

    def one(self, switches: Iterable[Switch]) -> tuple[Known, bool] | None:
        """The one condition that several switches are, and whether it turns on or off; None where they differ."""
        found: dict[tuple[str, bool], Known] = {}
        for switch in switches:
            test, on = _positive(switch.test, switch.on)
            known = self.known(switch.unit, test)
            if known is None or known.text in ("False", "None"):
                return None
            found[known.text, on] = known
        if len(found) != 1:
            return None
        ((_, on), known) = found.popitem()
        return known, on

    def known(self, unit: Unit, expression: cst.BaseExpression, depth: int = 0) -> Known | None:
        """A constant, a name or an attribute of one, as the home can write it; None where it has no such words."""
        if isinstance(expression, cst.Integer):
            return Known(expression.value, frozenset())
        root = expression
        while isinstance(root, cst.Attribute):
            root = root.value
        if not isinstance(root, cst.Name):
            return None
        text = unit.names.module.code_for_node(expression)
        binding = unit.names.binding(root)
        if binding is None:
            return Known(text, frozenset()) if text in ("True", "False", "None") else None
        there = self.scope.lookup(root.value)
        if there is not None and (there is binding or self._shares(root, there)):
            return Known(text, frozenset({there.name}))
        return self._passed(unit, binding, text.removeprefix(root.value), depth) if depth < _DEEPEST else None

    def _shares(self, root: cst.Name, there: Binding) -> bool:
        """Whether a name holds what the home's variable of the same name holds."""
        here = self.state.values.get(root)
        things = {t for t in here.things if isinstance(t, (Unknown, Origin))} if here is not None else set()
        return bool(things) and things <= set(self.state.binding(there).things)

    def _passed(self, unit: Unit, binding: Binding, rest: str, depth: int) -> Known | None:
        """What a parameter is given by every call, or a variable by its one assignment."""
        if len(binding.definitions) != 1:
            return None
        found: set[Known | None] = set()
        definition = binding.definitions[0]
        if isinstance(definition, cst.Param):
            found.update(self._given(unit, binding, definition, depth))
        else:
            found.update(self.known(unit, value, depth + 1) for value in bindings_value(unit.names, binding))
        if len(found) != 1 or (known := found.pop()) is None:
            return None
        plain = not rest or not known.text[:1].isdigit()
        return known._replace(text=known.text + rest) if plain else None

    def _given(self, unit: Unit, binding: Binding, param: cst.Param, depth: int) -> list[Known | None]:
        function = binding.scope.node
        if not isinstance(function, (cst.FunctionDef, cst.Lambda)) or function in self.state.escaped:
            return [None]
        if param not in parameters(function) or param.star:
            return [None]
        places = positional(function)
        shift = 1 if unit.names.within.get(function) is not None and _is_method(unit, function) else 0
        index = places.index(param) - shift if param in places else -1
        found: list[Known | None] = []
        for site in self.reach.sites(function):
            if self.reach.function_of(site) in self.reach.reachable:
                starred = any(a.star for a in site.args)
                argument = argument_of(site, param, index)
                value = argument.value if argument is not None else param.default
                caller = self.state.calls[site].unit if argument is not None else unit
                found.append(None if starred or value is None else self.known(caller, value, depth + 1))
        return found


def _is_method(unit: Unit, function: cst.FunctionDef | cst.Lambda) -> bool:
    return isinstance(unit.names.within[function].node, cst.ClassDef)


def _positive(test: cst.BaseExpression, on: bool) -> tuple[cst.BaseExpression, bool]:
    """A condition without its negations, and without comparisons with True and False."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _positive(test.expression, not on)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        target = test.comparisons[0]
        word = target.comparator.value if isinstance(target.comparator, cst.Name) else ""
        if word in ("True", "False") and isinstance(target.operator, (cst.Is, cst.Equal)):
            return _positive(test.left, on is (word == "True"))
    return test, on
