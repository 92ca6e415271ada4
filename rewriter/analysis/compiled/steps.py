"""
What a training asks at each step of a device that compiles its steps: a TPU.

Operations are collected there, and run as one graph when the step ends. A value that the script reads before makes it
wait for the device, and cuts the graph in two; a shape that depends on values is a new graph, which takes seconds or
minutes to compile. What is asked every so many steps only (`if step % 100 == 0`) costs little, and is not told.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.compiled import OnlyCuda, OpenShapes, StepWaits
from ...facts.roles import TENSORS
from ...facts.torch_api import process_calls, questions, tensor_parts
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name, outside_names
from ..dataflow.values import CallRecord, State, Unit, origins
from ..syntax.definitions import bindings_value
from ..syntax.walk import contains, descendants, nodes_in
from ..training.training import Training

_NUMBERS = frozenset({"float", "int", "bool"})
_NAMED = 4


def compiled_steps(
    state: State, unit: Unit, reach: Reach, training: Training, deferred: Container[cst.CSTNode]
) -> Iterator[Reason]:
    """The findings of one module: one of each kind for a loop, and one for each call of CUDA; ``deferred``: reads that
    are rewritten."""
    asked = _Questions(state, unit)
    seen: set[cst.CSTNode] = set()
    for loop in training.train_loops:
        nodes = [node for node in reach.runs_in(loop) if node in unit.names.parents and node not in seen]
        nodes = [node for node in sorted(nodes, key=unit.names.order) if not now_and_then(unit, node)]
        seen.update(nodes)
        if waits := [v for node in nodes if node not in deferred and (v := asked.wait(node)) is not None]:
            yield StepWaits(waits[0], asked.listed(waits), len(waits) > 1)
        if chosen := [node for node in nodes if asked.shape(node)]:
            yield OpenShapes(chosen[0], asked.listed(chosen), len(chosen) > 1)
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is not None and unit.names.function(call) in reach.reachable:
            yield from asked.of_cuda(record)


def now_and_then(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a place is reached every so many steps only."""
    choices = unit.names.enclosing(node, cst.If, cst.IfExp)
    tests = [choice.test for choice in choices if isinstance(choice, (cst.If, cst.IfExp))]
    return any(contains(test, cst.Modulo) for test in tests)


class _Questions:
    """Asks the nodes of one module."""

    def __init__(self, state: State, unit: Unit) -> None:
        self._state, self._unit = state, unit

    def listed(self, nodes: list[cst.CSTNode]) -> str:
        """A few of some expressions, and how many others there are."""
        texts = list(dict.fromkeys(f"`{self._text(node)}`" for node in nodes))
        if len(texts) > _NAMED:
            texts = [*texts[: _NAMED - 1], f"{len(texts) - _NAMED + 1} others"]
        return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))

    def wait(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """What a place needs the value of, now."""
        value: cst.BaseExpression | None = None
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            record = self._state.calls.get(node)
            read = node.func.attr.value if not node.args else ""
            held = record is not None and origins(record.receiver, *TENSORS)
            value = node if read == "item" or (held and questions.reads_values(read)) else None
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and len(node.args) == 1:
            given = node.args[0].value
            value = node if node.func.value in _NUMBERS and self._is_tensor(given) else None
        if isinstance(node, cst.Call) and method_name(node) == "print":
            shown = [part for arg in node.args for part in descendants(arg.value)]
            value = next((part for part in shown if isinstance(part, cst.Name) and self._is_shown(part)), None)
        elif isinstance(node, (cst.If, cst.While, cst.IfExp)):
            value = self._decided_by(node.test)
        return value

    def shape(self, node: cst.CSTNode) -> bool:
        """Whether what a place gives has as many rows as values say."""
        chosen = isinstance(node, cst.Call) and any(map(questions.gives_chosen, self._names(node)))
        if isinstance(node, cst.Subscript) and not self._is_target(node) and self._is_tensor(node.value):
            parts = [element.slice for element in node.slice]
            chosen = any(isinstance(part, cst.Index) and self._is_mask(part.value) for part in parts)
        return chosen

    def of_cuda(self, record: CallRecord) -> Iterator[Reason]:
        """What is said of a call that only CUDA answers."""
        name = outside_name(record)
        if process_calls.needs_cuda(name) and not self._where_there_is_one(record.node):
            yield OnlyCuda(record.node, self._text(record.node))

    def _where_there_is_one(self, node: cst.CSTNode) -> bool:
        around = self._unit.names.enclosing(node, cst.If, cst.IfExp)
        tests = [one.test for one in around if isinstance(one, (cst.If, cst.IfExp))]
        return any("cuda" in self._text(test) or "gpu" in self._text(test).lower() for test in tests)

    def _decided_by(self, test: cst.BaseExpression) -> cst.BaseExpression | None:
        """The part of a condition that needs the values of a tensor."""
        for node in descendants(test):
            if isinstance(node, cst.Comparison):
                asked = [node.left, *(target.comparator for target in node.comparisons)]
                equal = not any(
                    isinstance(t.operator, (cst.Is, cst.IsNot, cst.In, cst.NotIn)) for t in node.comparisons
                )
                if equal and any(self._is_tensor(part) for part in asked):
                    return node
            elif isinstance(node, cst.Call) and any(questions.makes_values(name) for name in self._names(node)):
                if any(self._is_tensor(part) for part in nodes_in(node, cst.Name)):
                    return node
        return None

    def _is_mask(self, index: cst.BaseExpression) -> bool:
        """Whether an index says of each row whether it is taken: a comparison, or a variable that is one."""
        binding = self._unit.names.binding(index) if isinstance(index, cst.Name) else None
        values = bindings_value(self._unit.names, binding) if binding is not None else [index]
        kinds = [value.expression if isinstance(value, cst.UnaryOperation) else value for value in values]
        return bool(kinds) and all(isinstance(value, cst.Comparison) for value in kinds)

    def _is_shown(self, name: cst.Name) -> bool:
        """Whether a tensor is shown as it is: not its shape, and no number computed from it."""
        above = self._unit.names.parents.get(name)
        return self._is_tensor(name) and not isinstance(above, (cst.Attribute, cst.Arg))

    def _is_tensor(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Attribute) and (node.attr.value == "grad" or tensor_parts.asks_how(node.attr.value)):
            return False
        return bool(origins(self._state.values.get(node), *TENSORS))

    def _is_target(self, node: cst.CSTNode) -> bool:
        return isinstance(self._unit.names.parents.get(node), (cst.AssignTarget, cst.AugAssign))

    def _names(self, node: cst.Call) -> list[str]:
        record = self._state.calls.get(node)
        return list(outside_names(record)) if record is not None else []

    def _text(self, node: cst.CSTNode) -> str:
        return self._unit.names.one_line(node)
