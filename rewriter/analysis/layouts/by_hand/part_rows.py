"""Parts of a batch that have different numbers of rows, by the code that makes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import libcst as cst

from ....facts.torch_api.kinds import tensors
from ....facts.torch_api.loading import row
from ...dataflow.call_graph import Reach
from ...dataflow.callees import method_name, outside_names
from ...dataflow.values import State, Unit
from ...syntax.definitions import added_to, in_other_branch, plain_values, seen_values
from ...syntax.walk import nodes_in

Rows = Counter[str]
"""A number of rows as a product of the numbers that its spellings stand for."""


def unlike_parts(
    state: State, reach: Reach, unit: Unit, source: cst.BaseExpression
) -> tuple[Unit, cst.CSTNode, str] | None:
    """
    Where the code that hands batches out makes one part of them with several rows for each row of another: the unit,
    the part, and the reason.

    Only what is certain counts: ``[x for row in rows for _ in range(5)]`` beside ``[f(row) for row in rows]``.
    """
    for own, handed in _handed_out(reach, unit, source):
        parts = [(element.value, _rows(state, own, element.value)) for element in handed.elements]
        for part, rows in parts:
            for other, fewer in parts:
                if fewer and rows > fewer:  # all its factors, and one more
                    text = own.names.module.code_for_node
                    one, base = text(_plain(state, own, part)), text(_plain(state, own, other))
                    more = " times ".join(sorted((rows - fewer).elements()))
                    reason = (
                        f"`{one}` has {more} rows for each row of `{base}`: they cannot be cut into shards together"
                    )
                    return own, part, reason
    return None


def _handed_out(reach: Reach, unit: Unit, source: cst.BaseExpression) -> Iterator[tuple[Unit, cst.Tuple]]:
    """The tuples that the functions below an expression yield or return as a batch."""
    values = [source, *(plain_values(unit.names, source) if isinstance(source, cst.Name) else ())]
    calls = (node for value in values for node in nodes_in(value, cst.Call))
    for code in {code for call in calls for code in reach.called(call)}:
        own = reach.unit(code)
        for node in nodes_in(code, cst.Yield, cst.Return):
            if own.names.function(node) is code:
                if isinstance(node.value, cst.Tuple):
                    yield own, node.value


def _plain(state: State, unit: Unit, node: cst.BaseExpression) -> cst.BaseExpression:
    """What a tensor or an array is made of."""
    while isinstance(node, cst.Call) and (given := _converts(state, node)) is not None:
        node = given
    return node


def _converts(state: State, call: cst.Call) -> cst.BaseExpression | None:
    """What a call makes a tensor or an array of, row by row."""
    record = state.calls.get(call)
    for name in outside_names(record) if record is not None else ():
        found = row(name)
        if found is None:
            continue
        if isinstance(found.transfer, tensors.Convert) and isinstance(call.func, cst.Attribute):
            if not call.args or name.startswith("torch.Tensor."):
                return call.func.value
        if isinstance(found.transfer, (tensors.Convert, tensors.Create)) and call.args and not call.args[0].star:
            return call.args[0].value
    return None


def _rows(state: State, unit: Unit, node: cst.BaseExpression, depth: int = 8) -> Rows:
    """How many rows an expression has, as factors; empty where that cannot be said."""
    node = _plain(state, unit, node)
    if depth == 0:
        return Counter()
    if isinstance(node, cst.Name):
        return _of_name(state, unit, node, depth)
    if isinstance(node, cst.ListComp):
        return _of_clauses(state, unit, node.for_in, depth)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        times, one = node.right, node.left
        if isinstance(one, cst.List) and len(one.elements) == 1:
            return _number(state, unit, times, depth)
    return Counter()


def _of_name(state: State, unit: Unit, name: cst.Name, depth: int) -> Rows:
    """The rows of what a variable holds where it is read; after its last definition that is one thing for all reads."""
    values, binding, order = seen_values(unit.names, name), unit.names.binding(name), unit.names.order
    if len(values) == 1:
        filled = isinstance(values[0], cst.List) and not values[0].elements
        known = _of_appends(state, unit, name, depth - 1) if filled else _rows(state, unit, values[0], depth - 1)
        return known or Counter({name.value: 1})
    settled = binding is not None and all(order(d) < order(name) for d in binding.definitions)
    return Counter({name.value: 1}) if settled or not values else Counter()


def _of_appends(state: State, unit: Unit, name: cst.Name, depth: int) -> Rows:
    """The rows of a list that each turn of some loops puts one thing into, in each branch of an ``if`` or in none."""
    names = unit.names
    calls, binding = added_to(names, name), names.binding(name)
    start = min((names.order(d) for d in binding.definitions), default=0) if binding is not None else 0
    loops = [[n for n in names.enclosing(c, cst.For, cst.While) if names.order(n) > start] for c in calls]
    if not calls or any(found != loops[0] for found in loops) or any(method_name(c) != "append" for c in calls):
        return Counter()
    sources = [n.iter for n in loops[0] if isinstance(n, cst.For)]
    jumps = any(True for n in loops[0] for _ in nodes_in(n.body, cst.Break, cst.Continue, cst.Return, cst.Try))
    choices = [n for call in calls for n in names.enclosing(call, cst.If) if names.order(n) > start]
    each = not choices if len(calls) == 1 else len(calls) == 2 == len(choices) and in_other_branch(names, *calls)
    found: Rows = Counter()
    for own in [_of_loop(state, unit, source, depth) for source in sources]:
        if not own:
            return Counter()
        found += own
    return found if each and not jumps and len(sources) == len(loops[0]) else Counter()


def _of_loop(state: State, unit: Unit, source: cst.BaseExpression, depth: int) -> Rows:
    """How many turns a loop has."""
    if isinstance(source, cst.Call) and method_name(source) == "range" and len(source.args) == 1:
        return _number(state, unit, source.args[0].value, depth)
    if isinstance(source, cst.Name):
        return _rows(state, unit, source, depth - 1)
    return Counter({unit.names.module.code_for_node(source): 1})


def _of_clauses(state: State, unit: Unit, clause: cst.CompFor | None, depth: int) -> Rows:
    found: Rows = Counter()
    while clause is not None:
        if clause.ifs:
            return Counter()  # it leaves some out
        own = _of_loop(state, unit, clause.iter, depth)
        if not own:
            return Counter()
        found += own
        clause = clause.inner_for_in
    return found


def _number(state: State, unit: Unit, node: cst.BaseExpression, depth: int) -> Rows:
    """A number as factors: ``len(rows)`` is that of the rows."""
    if isinstance(node, cst.Call) and method_name(node) == "len" and len(node.args) == 1:
        return _rows(state, unit, node.args[0].value, depth - 1)
    return Counter({unit.names.module.code_for_node(node): 1})
