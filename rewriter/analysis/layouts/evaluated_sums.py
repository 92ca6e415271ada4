"""
Means of an evaluation that are added up, and divided as the script divides them: ``total / len(loader.dataset)``.

The mean of the rows of all processes would be added N times less often. What is added instead is the sum of the means
of all processes' batches, which is the script's, and the rows are gathered after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import libcst as cst

from ...facts.accelerator import Side
from ...facts.module import SUM_OF_MEANS, Count, Form, Gather
from ...facts.roles import Role
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from .engine.layout import Partial, held
from .loop_layouts import layouts_of
from .losses import is_tensor
from .sums_of_means import SumOfMeans

_BECAUSE = "{} is added up for each batch, and each process has batches of its own"


def summed_first(
    state: State, unit: Unit, found: Mapping[cst.CSTNode, SumOfMeans], gathers: Iterable[Gather]
) -> list[Gather]:
    """
    What is joined in a module, with such means joined before the rows of their batch are.

    Args:
        state: the solved program.
        unit: the module.
        found: means that are added up, by the statement that does.
        gathers: what is joined.
    """
    joined = list(gathers)
    for adds, one in found.items():
        mean = _tensor(state, unit, adds.value) if isinstance(adds, cst.AugAssign) and one.by_script else None
        if mean is None:
            continue
        lines = dict.fromkeys([unit.names.statement(adds), *_set_alone(unit, mean, adds)])
        rows = (_RowsOfMean(unit, gather, line) for gather in joined if _is_plain(gather) for line in lines)
        of = next((each for each in rows if each.are_left_for(mean)), None)
        if of is None:
            continue
        place = joined.index(of.gather)
        after = [of.gather._replace(node=of.line)] if of.are_read_after() else []
        code = unit.names.module.code_for_node(mean)
        joined[place : place + 1] = [*after, Gather(mean, (code,), _BECAUSE, Form.REDUCE, reduction=SUM_OF_MEANS)]
    return joined


def filled(unit: Unit, found: Iterable[cst.CSTNode], gathers: Iterable[Gather]) -> Iterator[Count]:
    """The totals among these that count repeated rows, where such fill up the last batch of a process."""
    sums = {gather.node for gather in gathers if gather.reduction == SUM_OF_MEANS}
    for adds in found:
        if isinstance(adds, cst.AugAssign) and not sums.isdisjoint(descendants(adds)):
            yield Count(adds, "filled", unit.names.module.code_for_node(adds.target))


def _is_plain(gather: Gather) -> bool:
    """Whether rows are gathered under their names in a statement of its own, and nothing beside them."""
    more = (gather.inline, gather.counts, gather.sized, gather.recounts, gather.figures)
    return gather.form is Form.GATHER and gather.side is Side.AFTER and bool(gather.names) and not any(more)


def _tensor(state: State, unit: Unit, value: cst.BaseExpression) -> cst.BaseExpression | None:
    """The tensor that is added, or whose number is: ``loss``, ``loss.item()``, ``float(loss)``."""
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and method_name(value) == "item":
        value = value.func.value
    elif isinstance(value, cst.Call) and method_name(value) == "float" and len(value.args) == 1:
        value = value.args[0].value
    elif not origins(state.values.get(value), Role.LOSS):
        figures = list(held(layouts_of(state).value(unit, value)))
        if not all(isinstance(one, Partial) and one.host is False for one in figures):
            return None
    return value if is_tensor(state, unit, value) else None


def _set_alone(unit: Unit, mean: cst.BaseExpression, adds: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The statement before that computes a mean that is only added up."""
    binding = unit.names.binding(mean) if isinstance(mean, cst.Name) else None
    if binding is not None and len(binding.definitions) == 1 and set(binding.reads) <= set(descendants(adds)):
        yield unit.names.statement(binding.definitions[0])


class _RowsOfMean:
    """The rows of one batch that are gathered, and a statement that computes a mean of theirs, or adds it up."""

    def __init__(self, unit: Unit, gather: Gather, line: cst.CSTNode) -> None:
        self.gather, self.line = gather, line
        self._names = unit.names
        scope = unit.names.scopes[unit.names.function(gather.node)]
        self._bindings = [b for b in map(scope.lookup, gather.names) if b is not None]

    def are_left_for(self, mean: cst.BaseExpression) -> bool:
        """Whether the mean is computed from them, and nothing else reads them until it is added."""
        body = list(getattr(self._names.block(self.line), "body", ()))
        first = self._names.statement(self.gather.node)
        if first not in body or self.line not in body or body.index(first) >= body.index(self.line):
            return False
        made = set[Binding]()
        for other in body[body.index(first) + 1 : body.index(self.line)]:
            if self._reads(other):
                result = self._set_by(other)
                if result is None or result in self._bindings or not self._is_read_by_line_alone(result, other):
                    return False
                made.add(result)
        if isinstance(mean, cst.Name) and self._set_by(self.line) is self._names.binding(mean):
            return self._reads(self.line)
        return self._reads(mean) or any(self._names.binding(name) in made for name in nodes_in(mean, cst.Name))

    def are_read_after(self) -> bool:
        """Whether anything reads them later."""
        end = self._names.end(self.line)
        return any(self._names.order(read) > end for binding in self._bindings for read in binding.reads)

    def _set_by(self, statement: cst.CSTNode) -> Binding | None:
        """The variable that a statement sets, where that is all that it does."""
        parts = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        small = parts[0] if len(parts) == 1 else None
        target = small.targets[0].target if isinstance(small, cst.Assign) and len(small.targets) == 1 else None
        return self._names.binding(target) if isinstance(target, cst.Name) else None

    def _reads(self, node: cst.CSTNode) -> bool:
        return any(self._names.binding(name) in self._bindings for name in nodes_in(node, cst.Name))

    def _is_read_by_line_alone(self, binding: Binding, statement: cst.CSTNode) -> bool:
        """Whether only the line reads what a statement sets, until the loop sets it again."""
        order, end = self._names.order, self._names.end
        loop = next(self._names.enclosing(statement, cst.For), None)
        last = end(loop) if loop is not None else order(statement)
        inside = set(nodes_in(self.line, cst.Name))
        return all(read in inside or not end(statement) < order(read) <= last for read in binding.reads)
