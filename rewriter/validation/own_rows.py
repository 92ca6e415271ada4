"""
What is computed from the rows of one process: followed forward from the batches of prepared loaders, and from the noise
that is drawn beside them, until a call joins the values of all processes.

Each function has a summary: what it returns, and what it stores in its object, in terms of its parameters. A call puts
its arguments in their place, so one helper may serve joined rows and a process's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import method_name, outside_names
from ..analysis.dataflow.values import Instance, Unit, origins
from ..analysis.layouts.loop_step import is_synchronised
from ..analysis.layouts.running_figures import is_logged
from ..analysis.syntax.definitions import plain_values
from ..analysis.syntax.nodes import counter, entry_key, parameters
from ..analysis.syntax.walk import nodes_in
from ..facts.roles import Role
from ..facts.torch_api import surroundings
from .program import EmittedProgram
from .row_labels import NONE, ROWS, Field, Label, Labels, RowLabels, RowsOf, given_to

_TOOLS = (Role.MODEL, Role.CRITERION, Role.OPTIMIZER, Role.SCHEDULER, Role.SCALER, Role.ACCELERATOR, Role.LOADER)
"""What does not collect what it is called with."""
_ROUNDS = 12
"""At most so often the program is gone through: calls deeper than that are not followed."""


class OwnRows(RowLabels):
    """Answers for one emitted program."""

    def __init__(self, program: EmittedProgram) -> None:
        super().__init__(program)
        self._grown = 0
        """How often something was found to hold more."""
        self._conditions: dict[tuple[cst.CSTNode, bool], tuple[int, Labels]] = {}
        self._solve()

    def of(self, unit: Unit, node: cst.CSTNode) -> frozenset[RowsOf]:
        """The rows of one process that the value of an expression is computed from."""
        return self._resolved(self._labels(unit, node))

    def formats(self, unit: Unit, call: cst.Call) -> bool:
        """Whether a call gives what is computed from own rows, or a text of its arguments, whatever these are."""
        record = self._state.calls.get(call)
        text = record is not None and any(map(surroundings.makes_text, outside_names(record)))
        formats = isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.SimpleString)
        return text or formats or bool(self.of(unit, call))

    def counted(self, unit: Unit, name: cst.Name) -> bool:
        """Whether a variable is the number of the last batch that this process has evaluated, read after the loop. What
        is divided by it is a mean."""
        if any(
            isinstance(around, cst.BinaryOperation)
            and isinstance(around.operator, (cst.Divide, cst.FloorDivide))
            and part is around.right
            for part, around in pairwise([name, *unit.names.ancestors(name)])
        ):
            return False
        return self._numbers(unit, name) or any(self._moved(unit, value) for value in plain_values(unit.names, name))

    def _numbers(self, unit: Unit, name: cst.Name) -> bool:
        """Whether a variable is read after the loop that numbers with it the batches that this process evaluates."""
        seen = self._definitions(unit, name)
        for loop in {loop: None for node in seen for loop in unit.names.enclosing(node, cst.For)}:
            if (
                isinstance(loop, cst.For)
                and counter(loop) in seen
                and loop in self._evaluations
                and self._reads(unit, loop)
            ):
                return loop not in unit.names.ancestors(name)
        return False

    def _moved(self, unit: Unit, value: cst.BaseExpression) -> bool:
        """Whether a value is such a number, and one more: ``count = i + 1``."""
        if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Add):
            return False
        sides = (value.left, value.right)
        numbers = [side for side in sides if isinstance(side, cst.Name)]
        return any(isinstance(side, cst.Integer) for side in sides) and any(self._numbers(unit, n) for n in numbers)

    def handed(self, unit: Unit, node: cst.CSTNode) -> list[tuple[Unit, cst.BaseExpression]]:
        """What calls give to the parameters that own rows come to an expression by; empty where it has them itself."""
        labels = self._labels(unit, node)
        if self._resolved(label for label in labels if not isinstance(label, cst.Param)):
            return []
        found: list[tuple[Unit, cst.BaseExpression]] = []
        for param in (label for label in labels if isinstance(label, cst.Param)):
            above = (a for a in unit.names.ancestors(param) if isinstance(a, cst.FunctionDef))
            function = next(above, None)
            for site in self._reach.sites(function) if function is not None else ():
                record = self._state.calls[site]
                values = given_to(unit, function, param, record) if function is not None else []
                found += [(record.unit, value) for value in values if self.of(record.unit, value)]
        return found

    # ------------------------------------------------------------ the whole program

    def _solve(self) -> None:
        units = [(unit, list(self._nodes(unit))) for unit in self._reach.units]
        for _ in range(_ROUNDS):
            self._changed = False
            for unit, nodes in units:
                for node in nodes:
                    self._step(unit, node)
            if not self._changed:
                break

    def _nodes(self, unit: Unit) -> Iterator[cst.CSTNode]:
        reached = self._reach.reachable
        kinds = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor, cst.Return, cst.Call)
        for node in unit.names.every(*kinds):
            if unit.names.function(node) in reached:
                yield node

    def _step(self, unit: Unit, node: cst.CSTNode) -> None:
        if isinstance(node, cst.Assign):
            for target in node.targets:
                self._assign(unit, target.target, node.value)
                self._bind(unit, target.target, self._decides(unit, node))
        elif isinstance(node, (cst.AnnAssign, cst.NamedExpr)) and node.value is not None:
            self._assign(unit, node.target, node.value)
        elif isinstance(node, cst.AugAssign):
            self._counts = True
            labels = self._labels(unit, node.value) | self._labels(unit, node.target) | self._decides(unit, node)
            self._counts = False
            self._bind(unit, node.target, labels)
        elif isinstance(node, (cst.For, cst.CompFor)):
            self._iterate(unit, node)
        elif isinstance(node, cst.Return) and node.value is not None:
            code = unit.names.function(node)
            self._grow(self._returned, (code, None), self._labels(unit, node.value))
            for place in range(self._width(unit, code) or 0):
                assert isinstance(node.value, cst.Tuple)
                self._grow(self._returned, (code, place), self._labels(unit, node.value.elements[place].value))
        elif isinstance(node, cst.Call):
            self._call(unit, node)

    def _assign(self, unit: Unit, target: cst.BaseExpression, value: cst.BaseExpression) -> None:
        if isinstance(target, (cst.Tuple, cst.List)):
            if isinstance(value, (cst.Tuple, cst.List)) and len(value.elements) == len(target.elements):
                for left, right in zip(target.elements, value.elements, strict=True):
                    self._assign(unit, left.value, right.value)
                return
            for place, element in enumerate(target.elements):
                apart = isinstance(value, cst.Call) and self._gives(value, len(target.elements))
                labels = self._result(unit, value, place) if apart else self._labels(unit, value)  # type: ignore[arg-type]
                self._bind(unit, element.value, labels)
            return
        self._bind(unit, target, self._labels(unit, value))

    def _gives(self, call: cst.Call, width: int) -> bool:
        """Whether a call is of functions of the program that return tuples of so many values."""
        functions = self._reach.called(call)
        return bool(functions) and all(self._width(self._reach.unit(f), f) == width for f in functions)

    def _width(self, unit: Unit, code: Code) -> int | None:
        """How many values a function returns, where each of its returns writes out a tuple of them."""
        if code not in self._widths:
            values = [node.value for node in unit.names.returns.get(code, ())]
            tuples = [value for value in values if isinstance(value, cst.Tuple)]
            plain = all(isinstance(element, cst.Element) for value in tuples for element in value.elements)
            widths = {len(value.elements) for value in tuples}
            whole = plain and len(tuples) == len(values) and len(widths) == 1 and not self._reach.yields(code)
            self._widths[code] = widths.pop() if whole else None
        return self._widths[code]

    def _iterate(self, unit: Unit, loop: cst.For | cst.CompFor) -> None:
        number = counter(loop) if isinstance(loop, cst.For) else None
        if self._reads(unit, loop):
            evaluates = loop in self._evaluations
            labels: Labels = frozenset({RowsOf.EVALUATION if evaluates else RowsOf.TRAINING})
        else:
            labels = self._labels(unit, loop.iter)
        target: cst.BaseExpression = loop.target
        if isinstance(loop.iter, cst.Call) and method_name(loop.iter) == "items" and isinstance(target, cst.Tuple):
            target = target.elements[-1].value  # what a figure is called by is no figure
        for node in nodes_in(target, cst.Name):
            if node is not number:
                self._bind(unit, node, labels)

    def _call(self, unit: Unit, call: cst.Call) -> None:
        """What a call gives to parameters, and leaves in objects."""
        if self._joins(call):
            return
        record = self._state.calls.get(call)
        functions = [f for f in self._reach.called(call) if isinstance(f, cst.FunctionDef)] if record else []
        for function in functions:
            assert record is not None
            home = self._reach.unit(function)
            for param in parameters(function):
                for value in given_to(home, function, param, record):
                    self._grow(self._given, param, self._labels(unit, value))
            receivers = [*(record.receiver.things if record.receiver is not None else ()), *record.result.things]
            for name, labels in list(self._stored.get(function, {}).items()):
                found = self._put_in(unit, call, function, labels)
                for thing in receivers:
                    self._grow(self._fields, (thing, name), found)
        if functions or not isinstance(call.func, cst.Attribute) or record is None:
            return
        tool = origins(record.receiver, *_TOOLS) or origins(self._state.values.get(call.func), *_TOOLS)
        if tool or outside_names(record) or is_logged(self._state, call):
            return
        if is_synchronised(self._state, call):
            return  # a metric that joins the processes by itself
        labels = self._of_arguments(unit, call)
        if labels:
            self._collect(unit, call.func.value, labels | self._decides(unit, call))

    def _bind(self, unit: Unit, target: cst.BaseExpression, labels: Labels) -> None:
        """Let a target hold something."""
        if not labels:
            return
        if isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                self._bind(unit, element.value, labels)
        elif isinstance(target, cst.StarredElement):
            self._bind(unit, target.value, labels)
        elif isinstance(target, cst.Name):
            self._grow(self._defined, target, labels)
        elif isinstance(target, (cst.Subscript, cst.Attribute)):
            self._collect(unit, target, labels)

    def _collect(self, unit: Unit, place: cst.BaseExpression, labels: Labels) -> None:
        """Let a variable, or the attribute of an object, hold something beside what it holds; what a function of a
        package gives (``torch.ones(n).expand_as(x)``) is new, and nothing of the package."""
        key = ""
        while isinstance(place, (cst.Subscript, cst.Call)):
            key = entry_key(place)
            if isinstance(place, cst.Call):
                record = self._state.calls.get(place)
                if not isinstance(place.func, cst.Attribute) or (record is not None and outside_names(record)):
                    return
                place = place.func.value
            else:
                place = place.value
        if isinstance(place, cst.Name):
            for definition in self._definitions(unit, place):
                if key:
                    self._grow(self._entries.setdefault(definition, {}), key, labels)
                else:
                    self._grow(self._defined, definition, labels)
        elif isinstance(place, cst.Attribute):
            slot = self._state.values.get(place.value)
            for thing in slot.things if slot is not None else ():
                self._grow(self._fields, (thing, place.attr.value), labels & ROWS)
            if isinstance(place.value, cst.Name) and place.value.value == "self":
                self._grow(self._stored.setdefault(unit.names.function(place), {}), place.attr.value, labels)
            elif slot is None or not slot.things:
                self._collect(unit, place.value, labels)

    def _grow(self, table: dict, key: object, labels: Labels) -> None:  # type: ignore[type-arg]
        before = table.get(key, NONE)
        if not labels <= before:
            table[key] = before | labels
            self._changed = True
            self._grown += 1

    # ------------------------------------------------------------ one expression

    def _decides(self, unit: Unit, node: cst.CSTNode) -> Labels:
        """What decides whether something is counted: ``if guess == label: hits += 1``."""
        found = self._chosen(unit, node)
        target: cst.BaseExpression | None = node.target if isinstance(node, cst.AugAssign) else None
        while isinstance(target, (cst.Subscript, cst.Attribute)):
            if isinstance(target, cst.Subscript):
                found |= self._all(unit, target.slice)
            target = target.value
        return found

    def _chosen(self, unit: Unit, node: cst.CSTNode) -> Labels:
        """What the conditions around a node, up to the loop over batches, are computed from; found anew when more is
        known of something."""
        around = next(unit.names.enclosing(node, cst.If, cst.For, cst.While), None)
        if around is None or (isinstance(around, cst.For) and self._state.loaders.get(around)):
            return NONE
        known = self._conditions.get((around, self._counts))
        if known is None or known[0] != self._grown:
            above = self._chosen(unit, around)
            labels = above | self._labels(unit, around.test) if isinstance(around, cst.If) else above
            known = self._conditions[around, self._counts] = self._grown, labels
        return known[1]

    # ------------------------------------------------------------ the answer

    @cached_property
    def _of_class(self) -> dict[Field, Labels]:
        """What an attribute holds in any object of a class."""
        found: dict[Field, Labels] = {}
        for (thing, name), held in self._fields.items():
            if isinstance(thing, Instance):
                field = Field(thing.klass.node, name)
                found[field] = found.get(field, NONE) | held
        return found

    def _resolved(self, labels: Iterable[Label]) -> frozenset[RowsOf]:
        """The rows on the way to a value, for some call of its function."""
        found: set[RowsOf] = set()
        seen: set[Label] = set()
        pending = list(labels)
        while pending:
            label = pending.pop()
            if label in seen:
                continue
            seen.add(label)
            if isinstance(label, RowsOf):
                found.add(label)
            elif isinstance(label, cst.Param):
                pending += self._given.get(label, NONE)
            else:
                pending += self._of_class.get(label, NONE)
        return frozenset(found)
