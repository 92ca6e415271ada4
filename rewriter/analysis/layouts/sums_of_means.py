"""Means of batches that a script adds up, and divides by nothing, or by something else than their number."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import libcst as cst

from ...facts.module import SUM_OF_MEANS, Form, Gather
from ...facts.reasons import Reason
from ...facts.reasons.metrics import AddedMeans, MeansUnderRows, SumDivisor
from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import seen_values
from ..syntax.nodes import counter
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from ..training.schedules import made_of_length
from .constant_quotients import by_constants, is_written_number
from .engine.layout import Partial, ShardSize, held, inner, words_of
from .epoch_quotients import RowTotals, datasets
from .loop_layouts import LoopLayouts, layouts_of
from .loss_reductions import reduces_rows, reduction_of
from .losses import read_off


class SumOfMeans(NamedTuple):
    """Means of batches that are added up, and not divided by the number of the process's own batches."""

    reason: AddedMeans
    by_script: bool
    """What divides it is as large as in the script, if anything does: the sum over all processes is the script's."""
    made_of: frozenset[cst.CSTNode]
    """The statement that adds up, and what makes the values of the loop's variables that it adds."""


def mean_of_batches(
    reach: Reach, unit: Unit, shared: Container[cst.CSTNode]
) -> Iterator[tuple[cst.CSTNode, SumOfMeans]]:
    """Means of batches that are summed up and divided by another number than that of the process's own batches, each
    with the statement that sums up."""
    state = reach.state
    for loop, loaders in state.loaders.items():
        if loop not in shared or not isinstance(loop, cst.For) or loop not in unit.names.parents:
            continue
        ranged = isinstance(loop.iter, cst.Call) and method_name(loop.iter) == "range"
        if ranged and not made_of_length(reach, unit, loop.iter):
            continue  # it draws as many batches as the script says
        if not (adds := _adds_up(unit, loop)):
            continue
        inside, counts = set(descendants(loop)), _Counts(reach, unit, loop, loaders)
        layouts: LoopLayouts | None = None
        for node in sorted(adds, key=unit.names.order):
            binding = unit.names.binding(node.target) if isinstance(node.target, cst.Name) else None
            shown = _never_divided(reach, unit, binding, inside) if binding is not None else None
            quotient = _divided(unit, binding, inside, counts) if binding is not None and shown is None else None
            if binding is None or (shown is None and quotient is None):
                continue
            made = _made_of(unit, node, inside)
            if _is_summed(made):
                continue
            layouts = layouts or layouts_of(state).loop(unit, loop)
            divisors = list(divisors_in(node.value))
            fixed = (is_written_number(state, unit, one) or _counts_rows(layouts, one) for one in divisors)
            if shown is not None and not all(fixed):
                continue
            if not _adds_mean(state, unit, layouts, node):
                continue
            partly = _is_both(state, unit, node)
            if quotient is not None:
                divided, count = quotient
                reason = AddedMeans(divided, binding.name, node, count, partly)
                yield node, SumOfMeans(reason, count is not SumDivisor.LAST_INDEX, made)
                continue
            assert shown is not None
            within = tuple(unit.names.module.code_for_node(one) for one in divisors)
            by_rows = any(_counts_rows(layouts, one) for one in divisors)
            reason = AddedMeans(shown, binding.name, node, SumDivisor.NOTHING, partly, within, by_rows)
            yield node, SumOfMeans(reason, True, made)


def _made_of(unit: Unit, node: cst.AugAssign, inside: Container[cst.CSTNode]) -> frozenset[cst.CSTNode]:
    """What a statement adds, with the values that the loop gives to the variables in it: ``mean = loss.item()``."""
    added = set(descendants(node))
    names = (part for part in added if isinstance(part, cst.Name))
    values = (value for name in names for value in seen_values(unit.names, name) if value in inside)
    return frozenset(added.union(*map(descendants, values)))


def _is_summed(made: Iterable[cst.CSTNode]) -> bool:
    """Whether the accelerator adds up the means of all processes: ``reduce(loss, reduction="sum_of_means")``."""
    said = (node.value for node in made if isinstance(node, cst.Arg))
    return any(isinstance(value, cst.SimpleString) and value.raw_value == SUM_OF_MEANS for value in said)


def _adds_up(unit: Unit, loop: cst.For) -> list[cst.AugAssign]:
    """What a loop adds to a variable that it does not give a new value in the same turn before."""
    adds = [n for n in nodes_in(loop, cst.AugAssign) if isinstance(n.operator, cst.AddAssign)]
    return [node for node in adds if not _begins_anew(unit, loop, node)]


def _begins_anew(unit: Unit, loop: cst.For, node: cst.AugAssign) -> bool:
    """``loss = f(x); loss += g(x)``: what is added to is one batch's."""
    binding = unit.names.binding(node.target) if isinstance(node.target, cst.Name) else None
    order, blocks = unit.names.order, [loop.body, *unit.names.ancestors(node)]
    plain = (d for d in (binding.definitions if binding is not None else ()) if d is not node.target)
    return any(
        order(loop) < order(d) < order(node)
        and not isinstance(unit.names.parents.get(d), cst.AugAssign)
        and unit.names.block(unit.names.statement(d)) in blocks
        for d in plain
    )


def own_rows_under(state: State, unit: Unit, shared: Container[cst.CSTNode]) -> Iterator[Reason]:
    """Means that are divided by the number of a batch's rows and added up: with the global batch kept, each process has
    fewer of them."""
    for loop in state.loaders:
        if loop not in shared or not isinstance(loop, cst.For) or loop not in unit.names.parents:
            continue
        divided = [(node, divisors) for node in _adds_up(unit, loop) if (divisors := list(divisors_in(node.value)))]
        if not divided:
            continue
        layouts = layouts_of(state).loop(unit, loop)
        for node, divisors in divided:
            own = next((one for one in divisors if _counts_rows(layouts, one)), None)
            if own is not None and _adds_mean(state, unit, layouts, node):
                code = unit.names.module.code_for_node
                yield MeansUnderRows(node, code(node.target), code(own))


def divisors_in(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What an expression divides by."""
    for node in nodes_in(value, cst.BinaryOperation):
        if isinstance(node.operator, cst.Divide):
            yield node.right


def _counts_rows(layouts: LoopLayouts, node: cst.BaseExpression) -> bool:
    return isinstance(inner(layouts.value(node)), ShardSize)


def _adds_mean(state: State, unit: Unit, layouts: LoopLayouts, node: cst.AugAssign) -> bool:
    layout = inner(layouts.value(node.value))
    if isinstance(layout, (Partial, ShardSize)):
        return isinstance(layout, Partial) and layout.op == "mean"
    parts = list(descendants(node.value))
    if any(isinstance(p, cst.BinaryOperation) and isinstance(p.operator, cst.Multiply) for p in parts):
        return False
    for part in parts:
        if isinstance(part, (cst.Name, cst.Call)) and origins(state.values.get(part), Role.LOSS):
            return reduction_of(state, unit, part) in _NO_SUMS
    figure = read_off(node.value) or node.value
    return reduces_rows(state, unit, figure) and reduction_of(state, unit, figure) in _NO_SUMS


def _is_both(state: State, unit: Unit, node: cst.AugAssign) -> bool:
    """Whether what is added is a mean on one path of the program, and a sum on another."""
    parts = (part for part in descendants(node.value) if isinstance(part, (cst.Name, cst.Call)))
    return any(len(words_of(held(layouts_of(state).value(unit, part)))) > 1 for part in parts)


_NO_SUMS = frozenset({"mean", "mixed"})
"""Reductions after which a figure is about as large for many rows as for few."""


class _Counts:
    """The numbers that a sum over the batches of a loop may be divided by, and that are not how many there are."""

    def __init__(self, reach: Reach, unit: Unit, loop: cst.For, loaders: Iterable[Origin]) -> None:
        self.unit, self.loop = unit, loop
        self.rows = RowTotals(reach.state, datasets(loaders))

    def other(self, node: cst.BaseExpression) -> SumDivisor | None:
        """What a divisor counts; None for what may well be the number of batches."""
        binding = self.unit.names.binding(node) if isinstance(node, cst.Name) else None
        if binding is not None and counter(self.loop, from_zero=True) in binding.definitions:
            return SumDivisor.LAST_INDEX
        values = [node, *(seen_values(self.unit.names, node) if isinstance(node, cst.Name) else ())]
        if any(self.rows.counts(value) for value in values):
            return SumDivisor.SAMPLES
        if any(self.rows.divided(value) for value in values):
            return SumDivisor.OWN_BATCHES
        return None


def _never_divided(
    reach: Reach, unit: Unit, total: Binding, inside: Container[cst.CSTNode], depth: int = 0
) -> cst.CSTNode | None:
    """Where a total is shown or kept as it is, and nothing is computed from it, also by the callers of a function that
    returns it; None where something is."""
    shown: cst.CSTNode | None = None
    for read in total.reads:
        if read in inside:
            continue
        node = _shown_as(unit, read) or (_shown_by_callers(reach, unit, read, depth) if depth < _CALLERS else None)
        if node is None:
            return None
        shown = shown or node
    divides = any(isinstance(unit.names.parents.get(d), cst.AugAssign) and d not in inside for d in total.definitions)
    return None if divides else shown


def _shown_by_callers(reach: Reach, unit: Unit, read: cst.Name, depth: int) -> cst.CSTNode | None:
    """The return of a total that all callers show as it is; None where that is not certain."""
    around = next(unit.names.enclosing(read, cst.Return), None)
    value = around.value if isinstance(around, cst.Return) else None
    given = [part.value for part in value.elements] if isinstance(value, cst.Tuple) else [value]
    if read not in given:
        return None
    place = given.index(read) if isinstance(value, cst.Tuple) else None
    shown = []
    for site in reach.sites(unit.names.function(read)):
        caller = reach.state.calls[site].unit
        if place is None and _shown_as(caller, site) is not None:
            shown.append(True)
            continue
        assign = caller.names.parents.get(site)
        target: cst.CSTNode | None = assign.targets[0].target if isinstance(assign, cst.Assign) else None
        if place is not None:
            many = isinstance(target, cst.Tuple) and place < len(target.elements)
            target = target.elements[place].value if isinstance(target, cst.Tuple) and many else None
        binding = caller.names.binding(target) if isinstance(target, cst.Name) else None
        shown.append(binding is not None and _never_divided(reach, caller, binding, (), depth + 1) is not None)
    return read if shown and all(shown) else None


_CALLERS = 3
"""So many functions are followed up to where a total is shown."""


def _shown_as(unit: Unit, read: cst.BaseExpression) -> cst.CSTNode | None:
    """The value of a read that a text, a log or a list takes as it is; None where it is not certain that one does."""
    node: cst.CSTNode = read
    for around in unit.names.ancestors(read):
        call = unit.names.parents.get(around) if isinstance(around, cst.Arg) else None
        if isinstance(call, cst.Call) and method_name(call) in _TAKES:
            return node
        if isinstance(around, cst.FormattedStringExpression) or _formats(around):
            return node
        same = isinstance(call, cst.Call) and method_name(call) in _SAME
        if not same and not isinstance(around, (cst.Attribute, cst.Call, cst.Element, cst.Tuple, cst.List)):
            return None
        node = around if isinstance(around, cst.BaseExpression) and not isinstance(around, cst.Tuple) else node
    return None


_TAKES = frozenset("print format info log write append add_scalar".split())


_SAME = frozenset("float round str".split())


def _formats(node: cst.CSTNode) -> bool:
    """``"%.4f" % total``."""
    string = isinstance(node, cst.BinaryOperation) and isinstance(node.left, (cst.SimpleString, cst.ConcatenatedString))
    return string and isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo)


def _divided(
    unit: Unit, total: Binding, inside: Container[cst.CSTNode], counts: _Counts
) -> tuple[cst.CSTNode, SumDivisor] | None:
    """The division of a total after its loop by something else than the number of batches, and by what."""
    quotients: list[tuple[cst.CSTNode, cst.BaseExpression]] = []
    for definition in total.definitions:
        change = unit.names.parents.get(definition)
        if isinstance(change, cst.AugAssign) and isinstance(change.operator, cst.DivideAssign):
            quotients.append((change, change.value))
    quotients += (quotient for read in total.reads for quotient in _quotients(unit, read))
    for node, divisor in quotients:
        why = counts.other(divisor) if node not in inside else None
        if why is not None:
            return node, why
    return None


def _quotients(unit: Unit, read: cst.BaseExpression) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """The divisions of a read, and by what: ``total / a``, ``total * size / a``, ``total * (size / a)``."""
    node = read
    while isinstance(around := unit.names.parents.get(node), cst.BinaryOperation):
        if isinstance(around.operator, cst.Divide) and around.left is node:
            yield around, around.right
        elif isinstance(around.operator, cst.Multiply):
            factor = around.right if around.left is node else around.left
            if isinstance(factor, cst.BinaryOperation) and isinstance(factor.operator, cst.Divide):
                yield around, factor.right
        else:
            return
        node = around


def is_divided_as_in_script(reach: Reach, unit: Unit, total: Binding, loop: cst.For) -> bool:
    """Whether what is added up in a loop is divided after it by numbers that are as large as in the script, and not by
    the number of the process's own batches: by the samples, by constants, by nothing. What reads it in the loop, as a
    bar does, divides it by those so far."""
    inside = set(descendants(loop))
    if any(read in inside and not _is_added_to(unit, read) for read in total.reads):
        return False
    constants = by_constants(reach.state, unit, total, inside)
    if constants and None not in constants:
        return True
    if _never_divided(reach, unit, total, inside) is not None:
        return True
    quotient = _divided(unit, total, inside, _Counts(reach, unit, loop, reach.state.loaders.get(loop, ())))
    return quotient is not None and quotient[1] is not SumDivisor.LAST_INDEX


def _is_added_to(unit: Unit, read: cst.CSTNode) -> bool:
    """``total = total + loss``: the read is the statement that adds up."""
    binding = unit.names.binding(read) if isinstance(read, cst.Name) else None
    assign = next(unit.names.enclosing(read, cst.Assign, cst.AugAssign), None)
    parts = set(descendants(assign)) if assign is not None else set()
    return binding is not None and any(definition in parts for definition in binding.definitions)


def not_summed(found: Mapping[cst.CSTNode, SumOfMeans], gathers: Iterable[Gather]) -> dict[cst.CSTNode, Reason]:
    """What is to say of means that are added up, by the statement that does: nothing where their sum over the processes
    is added, with which the total is the script's own."""
    sums = [gather.node for gather in gathers if gather.form is Form.REDUCE and gather.adds_up]
    return {
        statement: one.reason for statement, one in found.items() if not one.by_script or one.made_of.isdisjoint(sums)
    }
