"""
The length of a loader that is asked for before the loader is prepared: ``steps = len(loader)``.

It is the number of batches on one process. What is shown or computed with it is N times too large; schedulers that are
prepared take it into account.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import libcst as cst

from ...facts.module import Count
from ...facts.roles import Role
from ..dataflow.values import Function, State, Unit, origins
from ..syntax.walk import descendants, nodes_in
from .schedules import is_length

_HOLDERS = (cst.Name, cst.Attribute)


def early_lengths(state: State, unit: Unit, is_early: Callable[[cst.Call], bool]) -> Iterator[Count]:
    """What holds such a length, where something else than a scheduler reads it."""
    for call in unit.names.calls:
        if is_length(call) and origins(state.values.get(call.args[0].value), Role.LOADER) and is_early(call):
            targets = _targets(unit, call)
            held = _Held(state, unit)
            used = any(map(held.is_used, targets)) if targets else not held.for_schedule(call)
            if used:
                name = unit.names.module.code_for_node(targets[0] if targets else call)
                yield Count(call, "early-length", name)


def _targets(unit: Unit, node: cst.CSTNode) -> list[cst.BaseExpression]:
    """What an expression, or what is computed from it, is assigned to."""
    statement = next((a for a in unit.names.ancestors(node) if isinstance(a, (cst.BaseSmallStatement))), None)
    if isinstance(statement, cst.Assign):
        found = [target.target for target in statement.targets]
    else:
        found = [statement.target] if isinstance(statement, cst.AnnAssign) else []
    return [target for target in found if isinstance(target, _HOLDERS)]


class _Held:
    """Follows what a length is computed into."""

    def __init__(self, state: State, unit: Unit) -> None:
        self.state, self.unit = state, unit
        self._seen = set[str]()

    def is_used(self, holder: cst.BaseExpression) -> bool:
        """Whether something reads what holds a length, other than schedulers, divisions and headers of loops."""
        return any(self._uses(read) for read in self._reads(holder))

    def for_schedule(self, read: cst.CSTNode) -> bool:
        """Whether a read is part of what makes a scheduler, or of a function that one calls at each step."""
        statement = self.unit.names.statement(read)
        around = itertools.takewhile(lambda node: node is not statement, self.unit.names.ancestors(read))
        made: list[cst.CSTNode] = [node for node in around if isinstance(node, cst.Call)]
        made += list(nodes_in(statement, cst.Name)) if made else []  # one of several results
        if any(origins(self.state.values.get(node), Role.SCHEDULER) for node in made):
            return True
        code = self.unit.names.function(read)
        return code in self._called_at_steps()

    def _called_at_steps(self) -> set[cst.CSTNode]:
        """The functions that schedulers are given."""
        return {
            thing.node
            for call in self.unit.names.calls
            if origins(self.state.values.get(call), Role.SCHEDULER)
            for arg in call.args
            if (held := self.state.values.get(arg.value)) is not None
            for thing in held.things
            if isinstance(thing, Function)
        }

    def _uses(self, read: cst.CSTNode) -> bool:
        above = self.unit.names.parents.get(read)
        if isinstance(above, cst.BinaryOperation) and above.right is read and isinstance(above.operator, cst.Divide):
            return False  # a finding of its own
        loop = next(self.unit.names.enclosing(read, cst.For), None)
        if isinstance(loop, cst.For) and read in set(descendants(loop.iter)):
            return False
        if self.for_schedule(read):
            return False
        targets = _targets(self.unit, read)
        return any(map(self.is_used, targets)) if targets else True

    def _reads(self, holder: cst.BaseExpression) -> list[cst.CSTNode]:
        text = self.unit.names.module.code_for_node(holder)
        if text in self._seen:
            return []
        self._seen.add(text)
        if isinstance(holder, cst.Name):
            binding = self.unit.names.binding(holder)
            return [*binding.reads] if binding is not None else []
        word = holder.attr.value if isinstance(holder, cst.Attribute) else ""
        reads = (n for n in self.unit.names.every(cst.Attribute) if n.attr.value == word)
        return [n for n in reads if not isinstance(self.unit.names.parents.get(n), (cst.AssignTarget, cst.AnnAssign))]
