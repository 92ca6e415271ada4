"""Shapes that are tied to the number of rows of a batch: ``x.view(args.batch_size, -1)``, ``x.view(x.size(0), -1)``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import libcst as cst

from ...facts.roles import Origin
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import Unit
from ..syntax.definitions import seen_values
from ..syntax.nodes import is_zero, keyword, positional
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in

_OF_SCRIPTS = frozenset({"init_hidden"})
"""Methods of scripts that make a state of so many rows."""


def batch_sizes(reach: Reach, loaders: Iterable[Origin]) -> list[cst.BaseExpression]:
    """The names that loaders are given as the size of a batch, in whatever function: ``args.batch_size``, which a call
    hands to the ``batch_size`` of the function that makes the loader."""
    found: dict[cst.BaseExpression, None] = {}
    for loader in loaders:
        pending = list(_given_sizes(reach, loader))
        while pending:
            unit, value = pending.pop()
            if not isinstance(value, (cst.Name, cst.Attribute)) or value in found:
                continue
            found[value] = None
            binding = unit.names.binding(value) if isinstance(value, cst.Name) else None
            if binding is not None and isinstance(value, cst.Name):
                pending += [*reach.given(binding), *((unit, one) for one in seen_values(unit.names, value))]
    return list(found)


def _given_sizes(reach: Reach, loader: Origin) -> Iterator[tuple[Unit, cst.BaseExpression]]:
    """What a loader, or the sampler of its batches, is given as the size of a batch."""
    if not isinstance(loader.node, cst.Call):
        return
    unit = reach.unit_of(loader.node, reach.units[0])
    if (size := keyword(loader.node, "batch_size", 1)) is not None:
        yield unit, size
    sampler = keyword(loader.node, "batch_sampler", 4)
    for made in (sampler, *(seen_values(unit.names, sampler) if isinstance(sampler, cst.Name) else ())):
        if isinstance(made, cst.Call):
            words = [[p.name.value for p in positional(function)[1:]] for function in reach.called(made)]
            words.append(["", "batch_size"] if method_name(made) == "BatchSampler" else [])
            for place, arg in enumerate(made.args):
                names = [arg.keyword.value] if arg.keyword is not None else [w[place] for w in words if place < len(w)]
                if any("batch" in name for name in names):
                    yield unit, arg.value


def shaped_by(node: cst.CSTNode, sizes: Sequence[cst.BaseExpression]) -> cst.Call | None:
    """The first call below a node that makes a shape of such a size."""
    for call in descendants(node) if sizes else ():
        if isinstance(call, cst.Call) and shapes(call):
            if any(part.deep_equals(size) for part in numbers_in(call) for size in sizes):
                return call
    return None


def shapes(call: cst.Call) -> bool:
    """Whether a call makes a shape of what it is given."""
    name = method_name(call)
    return name in _OF_SCRIPTS or questions.takes_shape(name)


def numbers_in(call: cst.Call) -> list[cst.BaseExpression]:
    """What a call is given as a shape: its arguments, and what is in their tuples."""
    return [part for arg in call.args for part in (arg.value, *_members(arg.value))]


def divided_by(node: cst.CSTNode, sizes: Sequence[cst.BaseExpression]) -> bool:
    """Whether something below a node is divided by such a size: ``hits / args.batch_size``."""
    return any(
        isinstance(part.operator, cst.Divide) and any(part.right.deep_equals(size) for size in sizes)
        for part in nodes_in(node, cst.BinaryOperation)
    )


def shaped_by_rows(unit: Unit, front: Sequence[cst.CSTNode], tail: Sequence[cst.CSTNode]) -> bool:
    """Whether statements shape something by a number of rows that was counted before them:
    ``n = x.size(0)``, and then ``out.view(n, -1)``."""
    found = (count for statement in front for count in row_counts(unit, statement))
    counts = {count.binding for count in found if count.form != "computed"}
    for node in (n for statement in tail for n in descendants(statement)) if counts else ():
        if isinstance(node, cst.Call) and shapes(node):
            names = (n for arg in node.args for n in nodes_in(arg, cst.Name))
            if any(unit.names.binding(name) in counts for name in names):
                return True
    return False


class RowCount(NamedTuple):
    """A variable that an assignment gives the number of a tensor's rows."""

    binding: Binding
    assign: cst.Assign
    form: Literal["number", "first of sizes", "computed"]
    """``n = x.size(0)``; ``n, c = x.shape``; ``n = float(x.size(0))``, ``n, m = x.size(0), 1``."""


def row_counts(unit: Unit, statement: cst.CSTNode) -> Iterator[RowCount]:
    """The variables that a statement gives the number of a tensor's rows."""
    for node in nodes_in(statement, cst.Assign):
        target, value = node.targets[0].target, node.value
        several = isinstance(target, (cst.Tuple, cst.List))
        first = target.elements[0].value if isinstance(target, (cst.Tuple, cst.List)) else target
        binding = unit.names.binding(first) if isinstance(first, cst.Name) else None
        if binding is None:
            continue
        if several and _is_shape(value):
            yield RowCount(binding, node, "first of sizes")
        elif is_row_count(value) and not several:
            yield RowCount(binding, node, "number")
        elif any(map(is_row_count, descendants(value))):
            yield RowCount(binding, node, "computed")


def _is_shape(value: cst.BaseExpression) -> bool:
    """``x.shape``, ``x.size()``."""
    if isinstance(value, cst.Call):
        return method_name(value) == "size" and not value.args
    return isinstance(value, cst.Attribute) and value.attr.value == "shape"


def is_row_count(value: cst.CSTNode | None) -> bool:
    """``x.shape[0]``, ``x.size(0)``, ``len(x)``."""
    if isinstance(value, cst.Subscript) and _is_shape(value.value) and len(value.slice) == 1:
        first = value.slice[0].slice
        return isinstance(first, cst.Index) and is_zero(first.value)
    if not isinstance(value, cst.Call) or len(value.args) != 1:
        return False
    if isinstance(value.func, cst.Name):
        return value.func.value == "len"
    return method_name(value) == "size" and is_zero(value.args[0].value)


def _members(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    return [e.value for e in value.elements] if isinstance(value, (cst.Tuple, cst.List)) else []
