"""Where the processes of a distributed program take different paths, for every way of distributing it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.values import Unit
from ..analysis.distributed.guards import ALONE, Guards
from ..analysis.distributed.rank_questions import RankQuestions
from ..analysis.syntax.definitions import bindings_value
from ..analysis.syntax.leaving import HANDLERS, ends
from ..analysis.syntax.nodes import is_none
from ..validation.program import EmittedProgram
from .lone import LoneConditions

Held = tuple[Unit, cst.BaseExpression]


class AuditGuards(Guards):
    """Where the processes of a program take different paths, for every dialect."""

    alone = ALONE | {"rank_zero_only", "rank_zero", "main_process_only", "master_only", "only_main_process"}

    def __init__(self, program: EmittedProgram, ranks: RankQuestions) -> None:
        super().__init__(program.state, program.reach, ranks)
        self._lone = LoneConditions(program, ranks, self.asks)
        self._had: dict[cst.CSTNode, bool] = {}

    def asks(self, unit: Unit, expression: cst.BaseExpression) -> bool:
        """Whether an expression checks which process this is, or for something that only the main process has."""
        return self.ranks.asks(unit, expression) or self._of_main(unit, expression)

    def confines(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether one process at most comes to a node, as far as the node's own function decides it."""
        places = (place.node for place in self.around(unit, node) if not isinstance(place.node, HANDLERS))
        return any(self._lets_one(unit, other, node) for other in places)

    def looks_for_a_file(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether a condition keeps processes apart only by a file that the code under it makes."""
        return isinstance(node, cst.If) and not self.asks(unit, node.test)

    def comes_alone(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether only the main process comes to a node: it is not who comes first that counts."""
        places = (place.node for place in self.around(unit, node) if not isinstance(place.node, HANDLERS))
        return any(self._lets_one(unit, p, node) for p in places if not self.looks_for_a_file(unit, p))

    def _lets_one(self, unit: Unit, other: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether what keeps processes apart lets only one come to a node, and not only keeps some from it."""
        test = other.left if isinstance(other, cst.BooleanOperation) else getattr(other, "test", None)
        if not isinstance(test, cst.BaseExpression) or not self.asks(unit, test):
            return True  # a decorator, a context of the accelerator, a file that is created where it is missing
        if isinstance(other, cst.BooleanOperation):
            return self._lone.lets_one(unit, test, isinstance(other.operator, cst.And))
        branches = (getattr(other, "body", None), getattr(other, "orelse", None))
        inside = {node, *unit.names.ancestors(node)}
        for branch, truth in zip(branches, (True, False), strict=True):
            if branch in inside:
                return self._lone.lets_one(unit, test, truth)
        for branch, truth in zip(branches, (False, True), strict=True):  # those come that the other branch does not end
            if branch is not None and ends(branch, self._exits):
                return self._lone.lets_one(unit, test, truth)
        return False

    def _of_main(self, unit: Unit, test: cst.BaseExpression) -> bool:
        """``if writer is not None``, where the other processes have None."""
        if test not in self._had:
            self._had[test] = False
            if isinstance(test, cst.BooleanOperation):
                self._had[test] = self._of_main(unit, test.left) or self._of_main(unit, test.right)
            elif isinstance(test, cst.UnaryOperation):
                self._had[test] = self._of_main(unit, test.expression)
            else:
                if isinstance(test, cst.Comparison) and is_none(test.comparisons[0].comparator):
                    test_of = test.left
                else:
                    test_of = test
                self._had[test] = any(self._given_to_main(unit, test_of))
        return self._had[test]

    def _given_to_main(self, unit: Unit, node: cst.BaseExpression) -> Iterator[bool]:
        values = list(self._values(unit, node, set()))
        for home, value in values:
            if isinstance(value, cst.IfExp) and (is_none(value.body) or is_none(value.orelse)):
                yield self.ranks.asks(home, value.test)
        made = [(home, value) for home, value in values if not is_none(value)]
        if made and len(made) < len(values):
            yield all(self.comes_alone(home, value) for home, value in made)

    def _values(self, unit: Unit, node: cst.BaseExpression, seen: set[cst.CSTNode]) -> Iterator[Held]:
        """The values that a variable or an attribute is given, through parameters and other variables; a choice of two
        is one value."""
        if node in seen:
            return
        seen.add(node)
        given: list[Held] = []
        if isinstance(node, cst.Name) and (binding := unit.names.binding(node)) is not None:
            given += [(unit, value) for value in bindings_value(unit.names, binding)]
            for param in filter(None, (_parameter(unit, definition) for definition in binding.definitions)):
                reached = self.reach.reachable
                given += ((u, v) for u, v in self.reach.given(binding) if u.names.function(v) in reached)
                given += [(unit, param.default)] if param.default is not None else []
        elif isinstance(node, cst.Attribute):
            given += self.ranks.tracer.attributes(unit, node)
        for home, value in given:
            further = list(self._values(home, value, seen)) if isinstance(value, (cst.Name, cst.Attribute)) else []
            yield from further or [(home, value)]


def _parameter(unit: Unit, definition: cst.CSTNode) -> cst.Param | None:
    """The parameter that a definition is, or is the name of."""
    parent = definition if isinstance(definition, cst.Param) else unit.names.parents.get(definition)
    return parent if isinstance(parent, cst.Param) else None
