"""Where a value comes from: an expression followed back through variables, attributes, parameters and returns."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from ..dataflow.call_binding import argument_for
from ..dataflow.call_graph import Reach
from ..dataflow.values import State, Unit
from ..syntax.definitions import unshadowed
from ..syntax.nodes import dotted
from ..syntax.scopes import Binding

_MOST = 400
"""At most this many steps back are followed: a value from further away counts as unknown."""


class ValueSource(NamedTuple):
    """An expression that creates a value."""

    unit: Unit
    node: cst.CSTNode
    part: int | None = None
    """The position in the tuple that it returns, if only one element is the value."""
    known: bool = True
    """False if the value was not followed to its origin."""


class Tracer:
    """Follows values back through a solved program."""

    def __init__(self, state: State, reach: Reach) -> None:
        self.state, self.reach = state, reach
        self._assigned: dict[str, list[tuple[Unit, cst.BaseExpression]]] | None = None

    def sources(self, unit: Unit, node: cst.CSTNode) -> list[ValueSource]:
        """The expressions that may have created the value of an expression: calls, literals, operations."""
        found: list[ValueSource] = []
        seen: set[tuple[cst.CSTNode, int | None]] = set()
        pending = [ValueSource(unit, node)]
        while pending:
            source = pending.pop()
            if (source.node, source.part) in seen:
                continue
            seen.add((source.node, source.part))
            steps = self._back(source) if len(seen) < _MOST else None
            if steps is None:
                found.append(source)
            else:
                pending += steps
        return found

    def _back(self, source: ValueSource) -> list[ValueSource] | None:
        """One step back; None if the expression creates its value itself."""
        unit, node = source.unit, source.node
        if not source.known:
            return None  # the target of a loop, a parameter that nobody gives
        if isinstance(node, cst.Name):
            return self._variable(unit, node, source.part)
        if isinstance(node, cst.Attribute):
            given = self.attributes(unit, node)
            return [ValueSource(u, value, source.part) for u, value in given] or None
        if isinstance(node, cst.IfExp):
            return [ValueSource(unit, side, source.part) for side in (node.body, node.orelse)]
        if isinstance(node, cst.NamedExpr):
            return [ValueSource(unit, node.value, source.part)]
        if isinstance(node, cst.Tuple) and source.part is not None and source.part < len(node.elements):
            return [ValueSource(unit, node.elements[source.part].value)]
        if isinstance(node, cst.Call):
            return self._returned(node, source.part)
        return None

    def _returned(self, call: cst.Call, part: int | None) -> list[ValueSource] | None:
        """What the functions of the program that a call reaches return."""
        record = self.state.calls.get(call)
        functions = [f for f in self.reach.called(call) if isinstance(f, cst.FunctionDef)]
        if (
            record is None
            or not functions
            or any(f.name.value in ("__init__", "forward", "__call__") for f in functions)
        ):
            return None
        found = []
        for function in functions:
            unit = self.reach.unit(function)
            returned = [r.value for r in unit.names.returns.get(function, ()) if r.value is not None]
            found += [ValueSource(unit, value, part) for value in returned]
        return found or None

    def _variable(self, unit: Unit, name: cst.Name, part: int | None) -> list[ValueSource] | None:
        binding = unit.names.binding(name)
        if binding is None:
            return None
        found: list[ValueSource] = []
        seen = {d: None for read in self._reads(unit, binding, name) for d in unshadowed(unit.names, binding, read)}
        for definition in seen or tuple(binding.definitions):
            found += self._defined(unit, definition, part)
        return found or None

    def _reads(self, unit: Unit, binding: Binding, name: cst.Name) -> list[cst.CSTNode]:
        """Where a variable is read: of one of the function around, where that calls the function that reads it."""
        function, home = unit.names.function(name), binding.scope.function.node
        if function is home or not isinstance(function, cst.FunctionDef) or function in self.state.escaped:
            return [name]
        sites = self.reach.sites(function)
        own = all(site in unit.names.parents and unit.names.function(site) is home for site in sites)
        return [*sites] if own and sites and isinstance(home, cst.FunctionDef) else [name]

    def _defined(self, unit: Unit, definition: cst.CSTNode, part: int | None) -> list[ValueSource]:
        """The values of a definition."""
        parent = unit.names.parents.get(definition)
        if isinstance(definition, cst.Param):
            return self._given(unit, definition)
        if isinstance(parent, cst.Param):
            return self._given(unit, parent)
        position = part
        if isinstance(parent, cst.Element):
            row = unit.names.parents.get(parent)
            if isinstance(row, (cst.Tuple, cst.List)):
                position, parent = list(row.elements).index(parent), unit.names.parents.get(row)
        if isinstance(parent, cst.AssignTarget):
            parent = unit.names.parents.get(parent)
        if isinstance(parent, (cst.Assign, cst.AnnAssign, cst.NamedExpr)) and parent.value is not None:
            return [ValueSource(unit, parent.value, position)]
        if isinstance(parent, cst.AugAssign):
            return [ValueSource(unit, parent)]
        return [ValueSource(unit, definition, known=False)]

    def _given(self, unit: Unit, param: cst.Param) -> list[ValueSource]:
        """The arguments for a parameter in the calls of its function, or else its default."""
        function = unit.names.parents.get(unit.names.parents.get(param, param))
        if not isinstance(function, (cst.FunctionDef, cst.Lambda)):
            return [ValueSource(unit, param, known=False)]
        found: list[ValueSource] = []
        sites = [self.state.calls[site] for site in self.reach.sites(function)]
        for site in sites:
            given = argument_for(unit, function, param, site)
            if given is not None:
                found.append(ValueSource(site.unit, given))
            elif any(arg.star for arg in site.node.args):
                found.append(ValueSource(unit, param, known=False))
            else:
                found.append(ValueSource(unit, param.default or param))
        if not sites and param.default is not None:
            found.append(ValueSource(unit, param.default))
        found = found or [ValueSource(unit, param)]
        return [s._replace(known=False) if s.node is param else s for s in found]

    def attributes(self, unit: Unit, node: cst.Attribute) -> list[tuple[Unit, cst.BaseExpression]]:
        """The values that the program gives to an attribute, by its spelling: ``args.rank``, ``self.model``."""
        if self._assigned is None:
            self._assigned = {}
            for each in self.reach.units:
                for target in each.names.every(cst.AssignTarget):
                    assert isinstance(target, cst.AssignTarget)
                    assign = each.names.parents.get(target)
                    if isinstance(assign, cst.Assign):
                        self._note(each, target.target, assign.value)
        return self._assigned.get(self._key(unit, node), [])

    def _note(self, unit: Unit, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        assert self._assigned is not None
        if isinstance(target, cst.Attribute):
            self._assigned.setdefault(self._key(unit, target), []).append((unit, value))
        elif isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            for left, right in zip(target.elements, value.elements, strict=False):
                self._note(unit, left.value, right.value)
        elif isinstance(target, cst.Tuple):
            for element in target.elements:
                if isinstance(element.value, cst.Attribute):
                    self._assigned.setdefault(self._key(unit, element.value), []).append((unit, value))

    def _key(self, unit: Unit, node: cst.Attribute) -> str:
        """``self.x`` has one key for each class, ``args.x`` one for the whole program."""
        text = dotted(node)
        if text.startswith("self."):
            klass = next((a for a in unit.names.ancestors(node) if isinstance(a, cst.ClassDef)), None)
            return f"{klass.name.value if klass is not None else ''} {text}"
        return text
