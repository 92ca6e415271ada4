"""
Loaders that give one row a batch: nothing says that all rows have one shape, and other shapes cannot be joined.

With more rows a batch the original has to stack them, so they have one shape. Nor would it meet them in one operation
with other rows of fewer dimensions: of one row, ``(1,)`` and ``(1, 1)``, each is that of the other; of several,
each would meet all the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import libcst as cst

from ...facts.accelerator import Side
from ...facts.module import Form, Gather
from ...facts.roles import Origin
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.constant_values import constants_of
from ..dataflow.constants import Values
from ..dataflow.values import State, Unit, Unknown
from ..syntax.nodes import is_none, keyword
from ..syntax.walk import descendants
from .engine.layout import Layout, Shard, inner
from .loop_layouts import LoopLayouts

_ONE: tuple[Values, ...] = (frozenset({1}), frozenset())
"""Of a batch that one row is, also where nothing is said of its size. Where it may be several, rows have one shape."""
_PARTS = "torch.utils.data.Subset"


def not_joined(state: State, reach: Reach, layouts: LoopLayouts, loop: cst.CSTNode, gathers: Sequence[Gather]) -> str:
    """Why the batches of one row that a loop's loader gives cannot be joined; empty where they can, or have several."""
    loaders = [loader for loader in reach.loaders(loop) if _gives_one_row(state, reach, loader)]

    def code(node: cst.BaseExpression) -> str:
        return layouts.unit.names.module.code_for_node(node.with_changes(lpar=(), rpar=()))

    if any(not _rows_have_one_shape(state, loader) for loader in loaders):
        if (value := _of_any_shape(layouts, loop, gathers)) is not None:
            return f"`{code(value)}` may have another shape on each process, so that it cannot be gathered"
    met = _met_by_others(layouts, loop, gathers) if loaders else None
    if met is not None:
        return (
            f"the two sides of `{code(met)}` are not known to have as many dimensions: joined, each row could meet "
            "those of all processes"
        )
    return ""


def _of_any_shape(layouts: LoopLayouts, loop: cst.CSTNode, gathers: Iterable[Gather]) -> cst.BaseExpression | None:
    """What is to be gathered in a loop and may have another shape on each process."""
    for gather in gathers:
        if gather.form is Form.GATHER:
            values = [*_variables(layouts.unit, loop, gather), *gather.inline]
            found = next((value for value in values if not _is_of_numbers(layouts, value)), None)
            if found is not None:
                return found
    return None


def _met_by_others(layouts: LoopLayouts, loop: cst.CSTNode, gathers: Iterable[Gather]) -> cst.BaseExpression | None:
    """What would meet each row with those of all processes once they are joined: ``guess == y``, where these are not
    known to have as many dimensions."""
    names = layouts.unit.names
    joined = [g for g in gathers if g.form is Form.GATHER and (g.inline or not set(g.names) <= set(g.sized))]
    starts = [names.order(g.node) if g.side is Side.BEFORE else names.end(g.node) for g in joined]
    for node in descendants(loop) if starts else ():
        if names.order(node) >= min(starts):
            for left, right in _met(node):
                one, other = inner(layouts.value(left)), inner(layouts.value(right))
                if _has_rows(one) and _has_rows(other) and not _have_one_rank(one, other):
                    return node if isinstance(node, cst.BaseExpression) else None
    return None


def _met(node: cst.CSTNode) -> list[tuple[cst.BaseExpression, cst.BaseExpression]]:
    """The operands that a node meets row by row, those of one text apart."""
    pairs: list[tuple[cst.BaseExpression, cst.BaseExpression]] = []
    if isinstance(node, cst.BinaryOperation) and not isinstance(node.operator, cst.MatrixMultiply):
        pairs = [(node.left, node.right)]
    elif isinstance(node, cst.Comparison):
        compared = [c for c in node.comparisons if not isinstance(c.operator, (cst.In, cst.NotIn, cst.Is, cst.IsNot))]
        pairs = [(node.left, one.comparator) for one in compared[:1]]
    return [(left, right) for left, right in pairs if not left.deep_equals(right)]


def _has_rows(layout: Layout) -> bool:
    return isinstance(layout, Shard) and layout.host is not True


def _have_one_rank(one: Layout, other: Layout) -> bool:
    ranks = {layout.rank if isinstance(layout, Shard) else None for layout in (one, other)}
    return len(ranks) == 1 and None not in ranks


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
        if name.value in gather.names and name.value not in gather.sized:
            binding = unit.names.binding(name)
            if binding is not None and name in binding.definitions and loop in unit.names.ancestors(name):
                yield name


def _is_of_numbers(layouts: LoopLayouts, value: cst.BaseExpression) -> bool:
    """Whether a tensor has one number for each row, and no other dimension."""
    layout = inner(layouts.value(value))
    return isinstance(layout, Shard) and layout.rank == 1


def _gives_one_row(state: State, reach: Reach, loader: Origin) -> bool:
    """Whether a loader gives one row a batch: ``DataLoader(rows, batch_size=1)``, also by ``**options``."""
    node = loader.node
    if not isinstance(node, cst.Call):
        return False
    unit, constants = reach.unit_of(node, reach.units[0]), constants_of(state, usual=True)
    sampler = keyword(node, "batch_sampler", 4)
    if sampler is not None and not is_none(sampler):
        return False
    hidden = any(arg.star for arg in node.args) and sampler is None
    if hidden and constants.argument(unit, node, "batch_sampler", 4) not in (frozenset(), frozenset({None})):
        return False
    return constants.argument(unit, node, "batch_size", 1) in _ONE


def _rows_have_one_shape(state: State, loader: Origin) -> bool:
    data = keyword(loader.node, "dataset", 0) if isinstance(loader.node, cst.Call) else None
    return data is None or _has_one_shape(state, data)


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
