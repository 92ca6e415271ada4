"""
What a training step takes by the place that a row has in its batch: ``x[:1]``, ``x.flip(0)``, ``table[: len(x)]``.

With whole batches for each process that is what the script does. With the global batch kept, the first row of a shard
is another row than the first of the batch.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.batches import PlacedRows
from ...facts.roles import Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import Unit, origins
from ..syntax.nodes import is_zero, keyword
from ..syntax.walk import descendants, nodes_in
from ..training.gradient_path import GradientPath
from ..training.training import Training
from .engine.layout import Replicated, Shard, ShardSize
from .loop_layouts import LoopLayouts, layouts_of


def placed_rows(
    reach: Reach, unit: Unit, training: Training, path: GradientPath, shared: Container[cst.CSTNode]
) -> Iterator[Reason]:
    """Where a loss of a module is computed from rows by their places: one finding."""
    nodes = path.nodes.union(*(descendants(end) for end in path.ends))
    for loop in training.train_loops:
        if loop not in shared or not isinstance(loop, cst.For):
            continue
        home = reach.unit_of(loop, unit)
        places = _RowPlaces(reach, layouts_of(reach.state).loop(home, loop))
        for node in reach.runs_in(loop):
            if node in unit.names.parents and places.takes(unit, node) and _goes_into(unit, node, nodes):
                yield PlacedRows(node, unit.names.one_line(node))
                return


class _RowPlaces:
    """Answers for the turns of one loop."""

    def __init__(self, reach: Reach, layouts: LoopLayouts) -> None:
        self._state, self._layouts = reach.state, layouts

    def takes(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether an expression takes rows by their places, or makes something for each place."""
        if isinstance(node, cst.Subscript):
            return self._takes_some(node)
        if not isinstance(node, cst.Call) or node not in self._state.calls:
            return False
        name = outside_name(self._state.calls[node]) or f"torch.Tensor.{method_name(node)}"
        if questions.creates_steps(name):
            return self._counts_rows(node) and not self._points_at_rows(unit, node)
        place = questions.cut_along(name)
        if place is None:
            return False
        method = isinstance(node.func, cst.Attribute) and self._is_rows(node.func.value)
        return (method or (bool(node.args) and self._is_rows(node.args[0].value))) and _is_first(node, place)

    def _takes_some(self, node: cst.Subscript) -> bool:
        """``x[:1]``, ``x[::2]``, ``x[0]`` of rows; ``table[:len(x)]`` of what is the same on all processes."""
        index = node.slice[0].slice
        if not isinstance(index, (cst.Slice, cst.Index)):
            return False
        if isinstance(index, cst.Slice):
            bounds = [part for part in (index.lower, index.upper, index.step) if part is not None]
            if self._is_rows(node.value):
                return bool(bounds) and not any(map(self._is_count, bounds))
            return isinstance(self._layouts.value(node.value), Replicated) and any(map(self._is_count, bounds))
        return self._is_rows(node.value) and _is_number(index.value)

    def _is_rows(self, node: cst.BaseExpression) -> bool:
        layout = self._layouts.value(node)
        return isinstance(layout, Shard) and layout.dim == 0 and layout.host is False and layout.assumed is None

    def _is_count(self, node: cst.BaseExpression) -> bool:
        return isinstance(self._layouts.value(node), ShardSize)

    def _counts_rows(self, call: cst.Call) -> bool:
        return any(self._is_count(arg.value) for arg in call.args)

    def _points_at_rows(self, unit: Unit, call: cst.Call) -> bool:
        """Whether places are an index of rows, or labels: ``scores[torch.arange(n), y]`` reads each row's own entry."""
        moved = _moved(unit, call)
        reads = _read_as(unit, moved) if isinstance(unit.names.parents.get(moved), cst.Assign) else [moved]
        return all(self._is_index_of_rows(unit, read) for read in reads)

    def _is_index_of_rows(self, unit: Unit, read: cst.CSTNode) -> bool:
        around = unit.names.parents.get(read)
        if isinstance(around, cst.Arg):
            given = unit.names.parents.get(around)
            return isinstance(given, cst.Call) and bool(origins(self._state.values.get(given), Role.LOSS))
        index = next(unit.names.enclosing(read, cst.Subscript), None)
        if not isinstance(around, cst.Index) or not isinstance(index, cst.Subscript):
            return False
        return not isinstance(self._layouts.value(index.value), Replicated)


def _is_first(call: cst.Call, place: int) -> bool:
    """Whether the dimension that a call cuts, or turns round, is the first: ``x.flip(0)``, ``x.chunk(2)``."""
    given = keyword(call, "dim", place) or keyword(call, "dims", place)
    if isinstance(given, (cst.List, cst.Tuple)) and len(given.elements) == 1:
        given = given.elements[0].value
    return given is None or is_zero(given)


def _goes_into(unit: Unit, node: cst.CSTNode, nodes: Container[cst.CSTNode]) -> bool:
    """Whether something is computed from an expression, or from the variables that it is given to."""
    for place in (node, *_read_as(unit, node)):
        statement = unit.names.statement(place)
        around: cst.CSTNode | None = place
        while around is not None and around is not statement:
            if around in nodes:
                return True
            around = unit.names.parents.get(around)
    return False


def _read_as(unit: Unit, node: cst.CSTNode) -> list[cst.CSTNode]:
    """Where the variables are read that the statement of an expression gives a value."""
    assign = next(unit.names.enclosing(node, cst.Assign), None)
    targets = [t.target for t in assign.targets] if isinstance(assign, cst.Assign) else []
    names = (part for target in targets for part in nodes_in(target, cst.Name))
    bindings = (unit.names.binding(name) for name in names)
    return [read for binding in bindings if binding is not None for read in binding.reads]


def _moved(unit: Unit, node: cst.CSTNode) -> cst.CSTNode:
    """A value with the methods that are called on it: ``torch.arange(n).to(device)``."""
    parents = unit.names.parents
    while isinstance(method := parents.get(node), cst.Attribute) and isinstance(call := parents.get(method), cst.Call):
        node = call
    return node


def _is_number(node: cst.BaseExpression) -> bool:
    inner = node.expression if isinstance(node, cst.UnaryOperation) else node
    return isinstance(inner, cst.Integer)
