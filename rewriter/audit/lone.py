"""Conditions on the rank: on which side of them one process is alone, and whether they let all in by another way."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from ..analysis.dataflow.callees import outside_names
from ..analysis.dataflow.values import External, Unit, origins
from ..analysis.distributed.rank_questions import RankQuestions
from ..analysis.syntax.nodes import dotted, is_none
from ..analysis.syntax.walk import descendants
from ..facts.roles import Role
from ..facts.torch_api import process_calls
from ..validation.program import EmittedProgram

Asks = Callable[[Unit, cst.BaseExpression], bool]
_SAME = (cst.Equal, cst.In, cst.Is)
_OTHERS = (cst.NotEqual, cst.NotIn, cst.IsNot)
_UNDER = (cst.LessThan, cst.LessThanEqual)
_OVER = (cst.GreaterThan, cst.GreaterThanEqual)
_MOST = 200
"""At most this many expressions are followed back."""


class LoneConditions:
    """Answers about conditions that ask which process this is."""

    def __init__(self, program: EmittedProgram, ranks: RankQuestions, asks: Asks) -> None:
        self._program = program
        self._ranks = ranks
        self._asks = asks
        self._deciding: frozenset[str] | None = None

    def lets_one(self, unit: Unit, test: cst.BaseExpression, truth: bool) -> bool:
        """
        Whether a condition is true (``truth``), or false, in one process at most.

        ``is_main and new or old`` is not: all processes come by the arm ``old``, unless that may say that there is only
        one process. Where it is unknown which side is that of one process, either may be.
        """
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self.lets_one(unit, test.expression, not truth)
        if isinstance(test, cst.BooleanOperation):
            sides = (test.left, test.right)
            asking = [side for side in sides if self._asks(unit, side)]
            if isinstance(test.operator, cst.And) is truth:
                return any(self.lets_one(unit, side, truth) for side in asking)
            lone = all(self.lets_one(unit, side, truth) for side in asking)
            return lone and not any(self._lets_in_all(unit, side) for side in sides if side not in asking)
        if isinstance(test, cst.Comparison):
            return _is_of_one(test) in (truth, None)
        return self._named(unit, test, truth)

    def _named(self, unit: Unit, test: cst.BaseExpression, truth: bool) -> bool:
        """A variable, an attribute or a call."""
        if self._is_number(test):
            return not truth  # zero is the first process
        made = [s for s in self._ranks.tracer.sources(unit, test) if s.node is not test and s.part is None]
        told = [
            self.lets_one(source.unit, source.node, truth)
            for source in made
            if isinstance(source.node, cst.BaseExpression) and source.known and self._asks(source.unit, source.node)
        ]
        return any(told) if told else truth

    def _is_number(self, node: cst.BaseExpression) -> bool:
        word = dotted(node.func if isinstance(node, cst.Call) else node).rpartition(".")[2]
        return word.endswith(("rank", "index")) or self._ranks.is_number(node)

    def _lets_in_all(self, unit: Unit, arm: cst.BaseExpression) -> bool:
        """Whether an arm of a condition has nothing to do with how many processes there are, as far as is known."""
        own = unit.names.function(arm)
        seen: set[cst.CSTNode] = set()
        pending: list[tuple[Unit, cst.CSTNode]] = [(unit, arm)]
        while pending:
            home, node = pending.pop()
            for part in descendants(node):
                if part in seen or (isinstance(part, cst.Name) and _is_given(home, part, own)):
                    continue
                if len(seen) > _MOST or self._may_count(home, part):
                    return False
                seen.add(part)
                if isinstance(part, (cst.Name, cst.Attribute, cst.Call)):
                    sources = self._ranks.tracer.sources(home, part)
                    pending += [(s.unit, s.node) for s in sources if s.node is not part and s.known]
        return True

    def _may_count(self, unit: Unit, part: cst.CSTNode) -> bool:
        """Whether an expression may say how many processes there are."""
        slot = self._program.state.values.get(part)
        if any(origin.role in (Role.PLACE, Role.ACCELERATOR) for origin in origins(slot)) or self._ranks.mentions(
            unit, part
        ):
            return True
        if isinstance(part, cst.Call):
            record = self._program.state.calls.get(part)
            names = outside_names(record) if record is not None else []
            return any(process_calls.asks_group(n) or process_calls.asks_availability(n) for n in names)
        if slot is not None and any(isinstance(thing, External) for thing in slot.things):
            return False  # a module, or what it has: its call is asked
        if isinstance(part, cst.Attribute) and isinstance(unit.names.parents.get(part), cst.Call):
            return False  # a method
        if isinstance(part, cst.Attribute) and not self._ranks.tracer.attributes(unit, part):
            return True  # an option, or a part of something that is not known
        word = part.attr.value if isinstance(part, cst.Attribute) else getattr(part, "value", None)
        return isinstance(part, (cst.Name, cst.Attribute)) and word in self._switches()

    def _switches(self) -> frozenset[str]:
        """The variables that decide whether a program distributes itself: such a call is under a condition on them."""
        if self._deciding is None:
            found: set[str] = set()
            for record in self._program.records:
                if any(map(process_calls.distributes, outside_names(record))):
                    for around in record.unit.names.enclosing(record.node, cst.If, cst.IfExp):
                        assert isinstance(around, (cst.If, cst.IfExp))
                        names = (n for n in descendants(around.test) if isinstance(n, cst.Name))
                        found.update(name.value for name in names)
            self._deciding = frozenset(found)
        return self._deciding


def _is_given(unit: Unit, name: cst.Name, own: cst.CSTNode) -> bool:
    """Whether a variable is a parameter of another function than one: of what that calls with arguments of its own."""
    binding = unit.names.binding(name)
    if binding is None or binding.scope.node is own:
        return False
    return any(isinstance(n, cst.Param) for d in binding.definitions for n in (d, unit.names.parents.get(d)))


def _is_of_one(test: cst.Comparison) -> bool | None:
    """Whether a comparison with a rank, or of what only one process has with None, is true in one process; None if that
    is unknown."""
    target = test.comparisons[0]
    if len(test.comparisons) > 1:
        return None
    if is_none(target.comparator):
        return isinstance(target.operator, (cst.IsNot, cst.NotEqual))
    if isinstance(target.operator, _SAME):
        return True
    if isinstance(target.operator, _OTHERS):
        return False
    turned = isinstance(test.left, cst.Integer)
    return isinstance(target.operator, _OVER if turned else _UNDER)
