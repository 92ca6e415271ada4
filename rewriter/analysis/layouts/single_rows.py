"""
Loaders that give one row a batch: nothing says that all rows have one shape, and other shapes cannot be joined.

With more rows a batch the original has to stack them, so they have one shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.roles import Origin
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.constant_values import Values, constants_of
from ..dataflow.values import State, Unit, Unknown
from ..syntax.nodes import is_none, keyword
from .engine.layout import Shard, inner
from .loop_layouts import LoopLayouts

_ONE: tuple[Values, ...] = (frozenset({1}), frozenset())
"""Of a batch that one row is, also where nothing is said of its size. Where it may be several, rows have one shape."""
_PARTS = "torch.utils.data.Subset"


def of_any_shape(state: State, reach: Reach, layouts: LoopLayouts, loop: cst.CSTNode, gathers: Iterable[Gather]) -> str:
    """What is to be gathered in a loop and may have another shape on each process: its text; empty for nothing."""
    if not any(_gives_single_rows(state, reach, loader) for loader in reach.loaders(loop)):
        return ""
    unit = layouts.unit
    for gather in gathers:
        if gather.form is Form.GATHER:
            values = [*_variables(unit, loop, gather), *gather.inline]
            found = next((value for value in values if not _is_of_numbers(layouts, value)), None)
            if found is not None:
                return unit.names.module.code_for_node(found)
    return ""


def read_alone(layouts: LoopLayouts, nodes: Iterable[cst.CSTNode]) -> str:
    """The rows of a batch that some nodes of a loop read as one number, ``y.item()``, ``if guess == y``: its text;
    empty for nothing. Each batch has one row then, whatever its loader says, and joined batches have several."""
    for node in nodes:
        for value in _read_as_number(node):
            layout = inner(layouts.value(value))
            if isinstance(layout, Shard) and layout.assumed is None and layout.host is not True:
                return layouts.unit.names.module.code_for_node(value)
    return ""


def _read_as_number(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """What a node reads as one number or as one truth: of several rows, either fails."""
    if isinstance(node, (cst.If, cst.While, cst.IfExp, cst.Assert)):
        return [node.test]
    if isinstance(node, cst.UnaryOperation):
        return [node.expression] if isinstance(node.operator, cst.Not) else []
    if isinstance(node, cst.BooleanOperation):
        return [node.left]
    if isinstance(node, (cst.AugAssign, cst.AssignTarget)):  # ``table[y][guess] += 1``: of several it changes a copy
        table = node.target.value if isinstance(node.target, cst.Subscript) else None
        indices = [part.slice for part in table.slice] if isinstance(table, cst.Subscript) else []
        return [index.value for index in indices if isinstance(index, cst.Index)]
    if isinstance(node, cst.Call):
        if isinstance(node.func, cst.Attribute) and node.func.attr.value == "item" and not node.args:
            return [node.func.value]
        if isinstance(node.func, cst.Name) and node.func.value in _NUMBERS and len(node.args) == 1:
            return [node.args[0].value]
    return []


_NUMBERS = frozenset({"int", "float", "bool"})


def _variables(unit: Unit, loop: cst.CSTNode, gather: Gather) -> Iterator[cst.Name]:
    """The places of a loop that set what a gather joins."""
    for name in unit.names.every(cst.Name):
        if isinstance(name, cst.Name) and name.value in gather.names and name.value not in gather.sized:
            binding = unit.names.binding(name)
            if binding is not None and name in binding.definitions and loop in unit.names.ancestors(name):
                yield name


def _is_of_numbers(layouts: LoopLayouts, value: cst.BaseExpression) -> bool:
    """Whether a tensor has one number for each row, and no other dimension."""
    layout = inner(layouts.value(value))
    return isinstance(layout, Shard) and layout.rank == 1


def _gives_single_rows(state: State, reach: Reach, loader: Origin) -> bool:
    """Whether a loader gives one row a batch, of a data set whose rows may have different shapes."""
    node = loader.node
    if not isinstance(node, cst.Call) or any(arg.star for arg in node.args):
        return False
    sampler = keyword(node, "batch_sampler", 4)
    if sampler is not None and not is_none(sampler):
        return False
    unit = reach.unit_of(node, reach.units[0])
    if constants_of(state, usual=True).argument(unit, node, "batch_size", 1) not in _ONE:
        return False
    data = keyword(node, "dataset", 0)
    return data is not None and not _has_one_shape(state, data)


def _has_one_shape(state: State, data: cst.BaseExpression) -> bool:
    """Whether all rows of a data set are known to have one shape."""
    held = state.values.get(data)
    made = [thing for thing in (held.things if held is not None else ()) if isinstance(thing, (Origin, Unknown))]
    if held is None or not made or len(made) < len(held.things):
        return False
    return all(questions.rows_have_one_shape(one.qualified) or _is_part(state, one) for one in made)


def _is_part(state: State, made: Origin | Unknown) -> bool:
    """Whether a data set has some rows of another, which have one shape."""
    whole = keyword(made.node, "dataset", 0) if isinstance(made.node, cst.Call) else None
    return made.qualified == _PARTS and whole is not None and _has_one_shape(state, whole)
