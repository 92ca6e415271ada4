"""
The gradient's path: every expression through which a backward pass may flow.

What is on it is never detached, gathered or reduced: that would train on something else, on one process, too. The path
is drawn too wide rather than too narrow: a metric that is wrongly taken for a part of it stays that of one process, and
is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import libcst as cst

from ...facts.accelerator import Side
from ...facts.module import Form, Gather
from ...facts.roles import Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.containers import collects
from ..dataflow.values import CallRecord, State, Unit, origins
from ..syntax.definitions import bindings_value, unpacked, unshadowed
from ..syntax.nodes import FunctionNode
from ..syntax.scopes import Binding
from ..syntax.walk import children
from .training import Training, without_gradient

_DATA = (Role.LOADER, Role.DATASET)
_NUMBER_TYPES = frozenset("float int bool str len".split())


def backward_operand(record: CallRecord) -> cst.BaseExpression:
    """What a backward pass starts from: the receiver, or the first argument of the accelerator's and autograd's."""
    func = record.node.func
    if isinstance(func, cst.Attribute) and origins(record.receiver):
        if not origins(record.receiver, Role.ACCELERATOR) or not record.node.args:
            return func.value
    if record.node.args and record.node.args[0].keyword is None:
        return record.node.args[0].value
    return func.value if isinstance(func, cst.Attribute) else func


class _Step(NamedTuple):
    """One expression on the path."""

    unit: Unit
    node: cst.CSTNode
    rises: bool
    """Its parameters lead to all callers. Not so what a call has led to: its own arguments are on the path already,
    those of other calls (of the same loss in an evaluation) are not."""
    free: bool = False
    """No gradient flows through it: a target that ``with torch.no_grad()`` computes."""

    def to(self, node: cst.CSTNode) -> _Step:
        """An expression of the same code."""
        return self._replace(node=node)


class GradientPath:
    """The expressions of a program that some backward pass may flow through."""

    def __init__(self, reach: Reach, training: Training) -> None:
        self._reach = reach
        self.nodes: set[cst.CSTNode] = set()
        self.ends: set[cst.Call] = set()
        """Calls whose result has no gradient: the path ends there."""
        seen: set[tuple[cst.CSTNode, bool, bool]] = set()
        pending: list[_Step] = [_Step(r.unit, backward_operand(r), True) for r in training.backwards]
        while pending:
            step = pending.pop()
            step = step._replace(free=step.free or without_gradient(step.unit, step.node))
            if (step.node, step.rises, step.free) not in seen:
                seen.add((step.node, step.rises, step.free))
                self.nodes.add(step.node)
                pending.extend(self._behind(step))

    def cuts(self, unit: Unit, gather: Gather) -> bool:
        """Whether a gather or a reduction would replace something on the path."""
        if gather.form is Form.REDUCE:
            return gather.node in self.nodes
        if not self.nodes.isdisjoint(gather.inline):
            return True
        order = unit.names.order
        start = order(gather.node) if gather.side is Side.BEFORE else unit.names.end(gather.node) + 1
        return any(
            order(read) >= start and not any(start <= order(d) < order(read) for d in binding.definitions)
            for binding in self._bindings(unit, gather)
            for read in binding.reads
            if read in self.nodes
        )

    def _bindings(self, unit: Unit, gather: Gather) -> list[Binding]:
        """The variables that a gather gives new values."""
        scope = unit.names.scopes[unit.names.function(gather.node)]
        found = (scope.lookup(name) for name in gather.set_anew)
        return [binding for binding in found if binding is not None]

    def _behind(self, step: _Step) -> Iterator[_Step]:
        """What the value of an expression is computed from."""
        node = step.node
        if self._is_data(node):
            return
        if isinstance(node, cst.Name):
            yield from self._of_variable(step, node)
        elif isinstance(node, cst.Call):
            yield from self._of_call(step, node)
        elif isinstance(node, cst.Attribute):
            yield step.to(node.value)
            yield from (
                _Step(unit, value, step.rises, step.free) for unit, value in self._kept.get(node.attr.value, ())
            )
        elif isinstance(node, cst.Subscript):
            yield step.to(node.value)
        elif isinstance(node, cst.IfExp):
            yield step.to(node.body)
            yield step.to(node.orelse)
        elif isinstance(node, cst.Lambda):
            yield step.to(node.body)
        elif not isinstance(node, (cst.Comparison, cst.BaseStatement)):
            yield from (step.to(child) for child in children(node))

    def _is_data(self, node: cst.CSTNode) -> bool:
        """Whether an expression is a loader or a data set: what they are made of has no gradient."""
        held = self._reach.state.values.get(node)
        return held is not None and bool(held.things) and len(origins(held, *_DATA)) == len(held.things)

    def _of_variable(self, step: _Step, name: cst.Name) -> Iterator[_Step]:
        names = step.unit.names
        binding = names.binding(name)
        if binding is None:
            return
        definitions = unshadowed(names, binding, name)
        yield from (step.to(value) for value in bindings_value(names, binding, definitions))
        for definition in definitions:
            parent = names.parents.get(definition)
            while isinstance(parent, (cst.Element, cst.StarredElement, cst.Tuple, cst.List)):
                parent = names.parents.get(parent)  # `for i, x in enumerate(outputs)`
            if isinstance(parent, (cst.For, cst.CompFor)):
                yield step.to(parent.iter)
            elif step.rises and (isinstance(definition, cst.Param) or isinstance(parent, cst.Param)):
                yield from (_Step(unit, value, True, step.free) for unit, value in self._reach.given(binding))
        yield from (step.to(value) for value in _collected(self._reach.state, step.unit, binding))

    def _of_call(self, step: _Step, call: cst.Call) -> Iterator[_Step]:
        name = method_name(call)
        if questions.ends_gradient(name) if isinstance(call.func, cst.Attribute) else name in _NUMBER_TYPES:
            if not step.free:
                self.ends.add(call)
            return
        for function in self._reach.called(call):
            yield from (one._replace(free=step.free) for one in self._returned(function))
        yield from (step.to(arg.value) for arg in call.args)
        if isinstance(call.func, cst.Attribute):
            yield step.to(call.func.value)

    def _returned(self, function: FunctionNode) -> Iterator[_Step]:
        unit = self._reach.unit(function)
        if isinstance(function, cst.Lambda):
            yield _Step(unit, function.body, False)
        for given in unit.names.returns.get(function, ()):
            if given.value is not None:
                yield _Step(unit, given.value, False)

    @cached_property
    def _kept(self) -> dict[str, list[tuple[Unit, cst.CSTNode]]]:
        """What attributes are given anywhere, by their names: ``self.loss = ...``."""
        found: dict[str, list[tuple[Unit, cst.CSTNode]]] = {}
        for unit in self._reach.units:
            for node in unit.names.every(cst.Attribute):
                around = unit.names.parents.get(node)
                if isinstance(around, (cst.AugAssign, cst.AnnAssign)):
                    value = around.value if around.target is node else None
                else:
                    value = unpacked(unit.names, node)
                if value is not None:
                    found.setdefault(node.attr.value, []).append((unit, value))
        return found


def _collected(state: State, unit: Unit, binding: Binding) -> Iterator[cst.CSTNode]:
    """What is put into a list, a set or a dict by a method of it: ``losses.append(loss)``."""
    for read in binding.reads:
        method = unit.names.parents.get(read)
        call = unit.names.parents.get(method) if isinstance(method, cst.Attribute) else None
        if isinstance(call, cst.Call) and call.func is method and collects(state, call):
            yield from (arg.value for arg in call.args)
