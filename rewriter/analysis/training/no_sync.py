"""
Gradient accumulation that stays the script's own: which backward passes need not exchange their gradients.

Where the accelerator cannot count the window (its rest is dropped or carried into the next epoch, the loss is not
divided, it is a loop of its own), the gradients of every batch but the last of a window may stay on their process: what
is exchanged in the end is their sum. That holds only if the weights are updated, and gradients read, after a backward
pass that exchanges: all steps are in the one ``if`` whose condition says so, or after the inner loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import libcst as cst

from ...facts.module import Unsynced
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import State, Unit
from ..syntax.walk import contains, descendants, nodes_in
from .training import Training, whole

_OPERATIONS = (cst.Comparison, cst.BinaryOperation, cst.BooleanOperation, cst.UnaryOperation)
_LEAVING = (cst.Break, cst.Continue, cst.Return)
_GRADIENTS = ("clip_grad_norm", "clip_grad_value", "get_total_norm")
_WAITS = "nullcontext"


def unsynced_of(state: State, reach: Reach, training: Training) -> tuple[Unit, Unsynced] | None:
    """The module and the loop in which some backward passes need not exchange; None where nothing is certain."""
    if len(training.backwards) != 1 or not training.steps:
        return None
    record = training.backwards[0]
    loop = next((n for n in reach.loops(record.node, record.unit) if isinstance(n, (cst.For, cst.While))), None)
    if loop is None or not isinstance(loop.body, cst.IndentedBlock):
        return None
    found = _NoSyncReader(state, reach, training, record.unit).read(loop, record.unit.names.statement(record.node))
    return (record.unit, found) if found is not None else None


class _NoSyncReader:
    """Reads the loop around the backward pass."""

    def __init__(self, state: State, reach: Reach, training: Training, unit: Unit) -> None:
        self.state, self.reach, self.training, self.unit = state, reach, training, unit

    def read(self, loop: cst.For | cst.While, statement: cst.CSTNode) -> Unsynced | None:
        """What is to be written, if each condition holds."""
        body = list(loop.body.body)
        if statement not in body or not self._name_is_free():
            return None
        model = self._model(loop.body)
        last = body.index(statement)
        found = self._gated(body, last) or self._inner(loop, body)
        if model is None or found is None:
            return None
        test, update = found
        return None if self._looked_at(set(update)) else Unsynced(loop, model, test)

    def _gated(self, body: Sequence[cst.CSTNode], last: int) -> tuple[cst.BaseExpression, Iterable[cst.CSTNode]] | None:
        """The condition of the one ``if`` after the backward pass that contains all steps, and its statements."""
        for index, gate in enumerate(body[last + 1 :], last + 1):
            if isinstance(gate, cst.If) and gate.orelse is None and contains(gate.test, cst.Modulo):
                inside = set(descendants(gate.body))
                if all(step.node in inside for step in self.training.steps):
                    steady = self._steady(gate.test, body[:index])
                    return (gate.test, inside) if steady else None
        return None

    def _inner(
        self, loop: cst.For | cst.While, body: Sequence[cst.CSTNode]
    ) -> tuple[cst.BaseExpression, Iterable[cst.CSTNode]] | None:
        """The last iteration of ``for k in range(N)`` if all steps come after that loop, and the statements beside
        it."""
        call = loop.iter if isinstance(loop, cst.For) else None
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Name) or call.func.value != "range":
            return None
        if len(call.args) != 1 or not isinstance(loop.target, cst.Name) or loop.orelse is not None:  # type: ignore[union-attr]
            return None
        inside = set(descendants(loop.body))
        around = self.reach.loops(loop, self.unit)
        if not around or any(isinstance(node, _LEAVING) for node in inside):
            return None
        for step in self.training.steps:
            if step.node in inside or self.reach.loops(step.node, step.unit) != around:
                return None
        size = call.args[0].value
        if not isinstance(size, (cst.Name, cst.Attribute, cst.Integer)):
            return None
        final = (
            cst.Integer(str(size.evaluated_value - 1))
            if isinstance(size, cst.Integer)
            else cst.BinaryOperation(size, cst.Subtract(), cst.Integer("1"))
        )
        target = loop.target  # type: ignore[union-attr]
        if not self._steady(size, body) or not self._steady(target, body):
            return None
        test = cst.Comparison(target, [cst.ComparisonTarget(cst.Equal(), final)])
        return test, set(descendants(around[0])) - inside

    def _model(self, body: cst.BaseSuite) -> str | None:
        """The name of the one model that the loop runs forward."""
        found: set[str] = set()
        for node in nodes_in(body, cst.Call):
            if node in self.training.forwards:
                trained = whole(self.state, self.training.forwards[node]) in self.training.models
                if not trained or not isinstance(node.func, (cst.Name, cst.Attribute)):
                    return None
                found.add(self.unit.names.module.code_for_node(node.func))
        return found.pop() if len(found) == 1 else None

    def _steady(self, test: cst.BaseExpression, statements: Sequence[cst.CSTNode]) -> bool:
        """Whether an expression is the same at the top of the loop as after some of its statements."""
        if isinstance(test, cst.Integer):
            return True
        if isinstance(test, _OPERATIONS):
            return all(self._steady(part, statements) for part in _operands(test))
        if isinstance(test, cst.Call):
            plain = isinstance(test.func, cst.Name) and test.func.value == "len" and len(test.args) == 1
            return plain and self._steady(test.args[0].value, statements)
        if isinstance(test, cst.Attribute):
            return self._steady(test.value, statements) and not self._set_in(test.attr.value, statements)
        return isinstance(test, cst.Name) and not self._bound_in(test, statements)

    def _bound_in(self, name: cst.Name, statements: Sequence[cst.CSTNode]) -> bool:
        binding = self.unit.names.binding(name)
        if binding is None:
            return True
        inside = {node for statement in statements for node in descendants(statement)}
        home = binding.scope.function.node
        return any(d in inside or self.unit.names.function(d) is not home for d in binding.definitions)

    def _set_in(self, attribute: str, statements: Sequence[cst.CSTNode]) -> bool:
        """Whether some of the code that runs in the statements sets an attribute of this name."""
        for statement in statements:
            for node in self.reach.runs(statement, self.unit):
                if isinstance(node, (cst.AssignTarget, cst.AugAssign, cst.AnnAssign)):
                    target = node.target
                    if isinstance(target, cst.Attribute) and target.attr.value == attribute:
                        return True
        return False

    def _looked_at(self, update: set[cst.CSTNode]) -> bool:
        """Whether gradients are read or changed anywhere but where they are exchanged."""
        for code in self.reach.reachable:
            for node in self.reach.own(code):
                if node in update:
                    continue
                if isinstance(node, cst.Attribute) and node.attr.value == "grad":
                    return True
                if isinstance(node, cst.Call) and node in self.state.calls:
                    name = outside_name(self.state.calls[node]).rpartition(".")[2]
                    if name.startswith(_GRADIENTS) or method_name(node) == "unscale_":
                        return True
        return False

    def _name_is_free(self) -> bool:
        """Whether ``nullcontext`` means contextlib's in this module, or nothing yet."""
        for scope in self.unit.names.scopes.values():
            binding = scope.bindings.get(_WAITS)
            if binding is not None and not all(isinstance(d, cst.ImportAlias) for d in binding.definitions):
                return False
        return True


def _operands(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    if isinstance(node, cst.Comparison):
        return [node.left, *(target.comparator for target in node.comparisons)]
    if isinstance(node, (cst.BinaryOperation, cst.BooleanOperation)):
        return [node.left, node.right]
    assert isinstance(node, cst.UnaryOperation)
    return [node.expression]
