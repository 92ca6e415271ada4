"""Where the processes of a distributed program take different paths, for every way of distributing it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.values import Unit
from ..analysis.syntax.definitions import bindings_value
from ..analysis.syntax.nodes import is_none
from ..validation.guards import ALONE, Guards
from ..validation.program import EmittedProgram
from .ranks import RankQuestions


class AuditGuards(Guards):
    """Where the processes of a program take different paths, for every dialect."""

    alone = ALONE | {"rank_zero_only", "rank_zero", "main_process_only", "master_only", "only_main_process"}

    def __init__(self, program: EmittedProgram, ranks: RankQuestions) -> None:
        super().__init__(program)
        self._ranks = ranks
        self._had: dict[cst.CSTNode, bool] = {}

    def asks(self, unit: Unit, expression: cst.BaseExpression) -> bool:
        """Whether an expression checks which process this is, or for something that only the main process has."""
        return self._ranks.asks(unit, expression) or self._of_main(unit, expression)

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
        binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
        if binding is not None:
            values = [(unit, value) for value in bindings_value(unit.names, binding)]
        elif isinstance(node, cst.Attribute):
            values = self._ranks.tracer.attributes(unit, node)
        else:
            return
        for home, value in values:
            if isinstance(value, cst.IfExp) and (is_none(value.body) or is_none(value.orelse)):
                yield self._ranks.asks(home, value.test)
        made = [(home, value) for home, value in values if not is_none(value)]
        if made and len(made) < len(values):
            yield all(next(self.around(home, value), None) is not None for home, value in made)
