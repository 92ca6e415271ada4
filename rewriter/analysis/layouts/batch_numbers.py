"""
Rows of a table that are chosen by the number of a batch: ``targets[step * size : (step + 1) * size]``.

On several processes each counts its own batches: number 3 is another batch on each of them, and none is batch 3 of the
data. What is read or kept at such a place belongs to other rows than those in hand.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import libcst as cst

from ...facts.module import Gather
from ...facts.reasons import Reason
from ...facts.reasons.batches import NumberedBatch, NumberedRows
from ...facts.roles import Role
from ...facts.torch_api.kinds.tensors import AlongDim, Reshape
from ...facts.torch_api.loading import transfer
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.constant_values import constants_of
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value
from ..syntax.nodes import adds_one, counter, keyword
from ..syntax.scopes import Binding
from ..syntax.walk import children, descendants, nodes_in
from ..training.gradient_path import GradientPath
from ..training.training import Training
from .engine.layout import Layout, Partial, Replicated, ShardSize, inner, varies
from .joined import Joined
from .loop_layouts import LoopLayouts, layouts_of


def batch_numbers(
    reach: Reach,
    unit: Unit,
    training: Training,
    path: GradientPath,
    shared: Container[cst.CSTNode],
    gathers: Iterable[Gather] = (),
) -> Iterator[Reason]:
    """
    The places of tables that the loops of a module over shared loaders compute from the number of the batch.

    Args:
        reach, unit, training: the solved program, a module, what the program trains.
        path: what its backward passes flow through.
        shared: the loops whose loaders are prepared.
        gathers: what makes values of the module those of all processes: joined rows are counted in their order.
    """
    made, state = list(gathers), reach.state
    for loop in state.loaders:
        if loop in shared and isinstance(loop, cst.For) and loop in unit.names.parents:
            numbered = _NumberedLoop(state, unit, loop, path, Joined(reach, unit, loop, made))
            if numbered.counters or numbered.sums:
                yield from numbered.found(trains=loop in training.train_loops)


def counters(unit: Unit, loop: cst.For) -> Iterator[Binding]:
    """What counts the batches of a loop: the number that ``enumerate`` gives, and what each turn adds one to."""
    named: list[cst.CSTNode | None] = [counter(loop)]
    turn = {loop.body, *getattr(loop.body, "body", ())}
    for node in nodes_in(loop.body, cst.Assign, cst.AugAssign):
        if unit.names.statement(node) in turn and adds_one(node):
            named.append(node.target if isinstance(node, cst.AugAssign) else node.targets[0].target)
    for name in named:
        binding = unit.names.binding(name) if isinstance(name, cst.Name) else None
        if binding is not None:
            yield binding


class _NumberedLoop:
    """One loop over a shared loader, and what counts its batches or their rows."""

    def __init__(self, state: State, unit: Unit, loop: cst.For, path: GradientPath, joined: Joined) -> None:
        self._state, self._unit, self._loop, self._path, self._joined = state, unit, loop, path, joined
        self._nodes = list(descendants(loop.body))
        self._inside = set(self._nodes)
        self._layouts: LoopLayouts | None = None
        self.counters = set(counters(unit, loop))
        self.sums = set(self._sums())
        self._places: dict[Binding, bool] = {}

    def _value(self, node: cst.BaseExpression) -> Layout:
        self._layouts = self._layouts or layouts_of(self._state).loop(self._unit, self._loop)
        return inner(self._layouts.value(node))

    def _sums(self) -> Iterator[Binding]:
        """What adds up the rows of the batches: ``start += len(x)``."""
        for node in self._nodes:
            if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
                binding = self._unit.names.binding(node.target) if isinstance(node.target, cst.Name) else None
                read = nodes_in(node.value, cst.Name)
                whole = self._joined.joins(node.value) or any(map(self._joined.holds, read))
                if binding is not None and not whole and isinstance(self._value(node.value), ShardSize):
                    yield binding

    # ------------------------------------------------------------ what depends on the number

    def _is_place(self, node: cst.CSTNode) -> bool:
        """Whether an expression is computed from the rows of the batches so far: a product with their number, or a sum
        of their rows."""
        for part in descendants(node):
            if isinstance(part, cst.BinaryOperation) and isinstance(part.operator, cst.Multiply):
                sides = (self._counts(part.left), self._counts(part.right))
                if sides[0] != sides[1]:
                    return True
            if isinstance(part, cst.Name) and self._holds_place(part):
                return True
        return False

    def _holds_place(self, name: cst.Name) -> bool:
        binding = self._unit.names.binding(name)
        if binding is None or binding in self.counters:
            return False
        if binding in self.sums:
            return True
        if binding not in self._places:
            self._places[binding] = False
            here = [definition for definition in binding.definitions if definition in self._inside]
            values = bindings_value(self._unit.names, binding, here) if here else ()
            self._places[binding] = any(self._is_place(value) for value in values)
        return self._places[binding]

    def _counts(self, node: cst.CSTNode) -> bool:
        """Whether the number of the batch is in an expression, and not only what is left of it: ``step % 4``."""
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
            return False
        if isinstance(node, cst.Name):
            return self._unit.names.binding(node) in self.counters
        return any(self._counts(child) for child in children(node)) and not isinstance(node, (cst.Call, cst.Subscript))

    def _is_single(self) -> bool:
        """Whether a batch has one row, so that its number is that of the row."""
        loaders = [o.node for o in self._state.loaders.get(self._loop, ()) if isinstance(o.node, cst.Call)]
        records = [self._state.calls.get(loader) for loader in loaders]
        asked = constants_of(self._state)
        return bool(records) and all(
            record is not None
            and keyword(record.node, "batch_sampler", 4) is None
            and asked.argument(record.unit, record.node, "batch_size", 1) in (frozenset(), frozenset({1}))
            for record in records
        )

    # ------------------------------------------------------------ what is read or kept there

    def found(self, *, trains: bool) -> Iterator[Reason]:
        """One finding for each table."""
        told: set[str] = set()
        for node, table, at in self._taken():
            name = self._code(table)
            of_rows = self._is_place(at) or (self._counts(at) and self._is_single())
            if name in told or not (of_rows or self._counts(at)):
                continue
            kept = self._kept(node)
            if kept is not None and self._is_of_this_process(table):
                wrong = False
            elif kept is not None:
                wrong = of_rows and not isinstance(self._value(kept), (Replicated, Partial, ShardSize))
            else:
                wrong = trains and node in self._path.nodes and not varies(self._value(table))
            if wrong:
                told.add(name)
                yield _finding(node, name, self._code(at), kept=kept is not None, of_rows=of_rows)

    def _is_of_this_process(self, table: cst.BaseExpression) -> bool:
        """Whether a table has as many entries as the process has batches: ``found = [None] * len(loader)``."""
        binding = self._unit.names.binding(table) if isinstance(table, cst.Name) else None
        values = bindings_value(self._unit.names, binding) if binding is not None else ()
        calls = (part for value in values for part in nodes_in(value, cst.Call))
        counted = [call.args[0].value for call in calls if method_name(call) == "len" and call.args]
        return any(origins(self._state.values.get(each), Role.LOADER) for each in counted)

    def _taken(self) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression, cst.CSTNode]]:
        """Each read or store of entries of something: the node, what has the entries, and where they are."""
        for node in self._nodes:
            if isinstance(node, cst.Subscript):
                for element in node.slice:
                    yield node, node.value, element.slice
            elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
                held = f"torch.Tensor.{node.func.attr.value}"
                record = self._state.calls.get(node)
                if record is None or not _chooses(held):
                    continue
                table, args = node.func.value, [arg.value for arg in node.args]
                if outside_name(record).count(".") == 1:  # torch.index_select(table, 0, rows)
                    table, args = args[0] if args else table, args[1:]
                for arg in args:
                    if self._is_place(arg):
                        yield node, table, arg

    def _kept(self, node: cst.CSTNode) -> cst.BaseExpression | None:
        """What is stored at a place; None where it is only read."""
        if isinstance(node, cst.Call):
            in_place = isinstance(node.func, cst.Attribute) and node.func.attr.value.endswith("_")
            return node.args[-1].value if in_place and node.args else None
        above = self._unit.names.parents.get(node)
        if isinstance(above, cst.AssignTarget):
            above = self._unit.names.parents.get(above)
            return above.value if isinstance(above, cst.Assign) else None
        return above.value if isinstance(above, cst.AugAssign) and above.target is node else None

    def _code(self, node: cst.CSTNode) -> str:
        return self._unit.names.one_line(node)


def _chooses(method: str) -> bool:
    """Whether a method of a tensor reads or sets entries along a dimension."""
    selects = transfer(method, Reshape)
    return transfer(method, AlongDim) is not None or (selects is not None and selects.how in ("select", "narrow"))


def _finding(node: cst.CSTNode, table: str, place: str, *, kept: bool, of_rows: bool) -> Reason:
    if not of_rows:
        return NumberedBatch(node, table, place)
    return NumberedRows(node, table, place, kept)
