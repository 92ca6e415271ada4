"""Where processes take different paths: conditions on the rank, code that only one process runs, exception handlers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from ...facts.torch_api.process_calls import is_distributed_sampler, turns
from ...facts.torch_api.surroundings import asks_existence, ends_process, fetches, takes_away, writes
from ..dataflow.call_constants import Constants, below
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import outside_name
from ..dataflow.code_place import CodePlace
from ..dataflow.constant_values import constants_of
from ..dataflow.drawn_batches import only_draws
from ..dataflow.raised import met_alone
from ..dataflow.values import State, Unit
from ..effects.file_caches import if_missing
from ..syntax.definitions import bindings_value
from ..syntax.leaving import HANDLERS, exits_quietly, quiet_exit
from ..syntax.walk import children, descendants, nodes_in
from .rank_questions import RankQuestions

_NUMBERS = frozenset({"process_index", "local_process_index"})
ALONE = frozenset({"on_main_process", "on_local_main_process", "on_last_process", "on_process", "on_local_process"})
_JUMPS = (cst.Return, cst.Continue, cst.Break)
_NESTED = (cst.BaseStatement, cst.BaseSuite, cst.Else, *HANDLERS)
_CLOSED: frozenset[type[cst.CSTNode]] = frozenset({cst.FunctionDef, cst.Lambda, cst.ClassDef})


class Guards:
    """The code of a program that not every process runs, or not all at the same time."""

    alone = ALONE
    """Decorators of functions that only one process runs."""

    def __init__(self, state: State, reach: Reach, ranks: RankQuestions) -> None:
        self.state, self.reach, self.ranks = state, reach, ranks
        self._parted: dict[tuple[cst.CSTNode, bool], list[cst.If]] = {}
        self._leavings: dict[cst.CSTNode, list[tuple[cst.CSTNode, cst.CSTNode]]] = {}

    def around(self, unit: Unit, node: cst.CSTNode) -> Iterator[CodePlace]:
        """Why not every process reaches a node, as far as the node's own function decides it."""
        below = node
        function = unit.names.function(node)
        for above in unit.names.ancestors(node):
            if above is function or isinstance(above, cst.ClassDef):
                break
            if self._parts(unit, above, below):
                yield CodePlace(unit, above)
            if isinstance(above, (cst.For, cst.While)) and below is above.body:
                yield from (CodePlace(unit, left) for left in self._partings(unit, above.body))
            if isinstance(above, cst.IndentedBlock):
                yield from (CodePlace(unit, left) for left in self._left(unit, above, below))
            below = above
        block = unit.names.module if isinstance(function, cst.Module) else getattr(function, "body", None)
        if isinstance(block, cst.Module):
            yield from (CodePlace(unit, left) for left in self._left(unit, block, below))
        if isinstance(function, cst.FunctionDef):
            if any(last_name(d.decorator) in self.alone for d in function.decorators):
                yield CodePlace(unit, function)

    def asks(self, unit: Unit, expression: cst.BaseExpression) -> bool:
        """Whether an expression asks which process this is."""
        return self.ranks.asks(unit, expression)

    def _parts(self, unit: Unit, above: cst.CSTNode, below: cst.CSTNode) -> bool:
        if isinstance(above, (cst.If, cst.IfExp, cst.While)):
            parts = self.asks(unit, above.test) or self._looks_for_own_file(above)
            return below is not above.test and parts
        if isinstance(above, cst.BooleanOperation):
            return below is above.right and self.asks(unit, above.left)
        if isinstance(above, cst.For):
            return below is above.body and self._is_own_part(unit, above.iter)
        if isinstance(above, cst.With):
            calls = [item.item for item in above.items if isinstance(item.item, cst.Call)]
            return below is above.body and any(last_name(call.func) in turns() for call in calls)
        if isinstance(above, (cst.ExceptHandler, cst.ExceptStarHandler)):
            return met_alone(self.state, above.type) and not self._ends_data(unit, above)
        return isinstance(above, HANDLERS)

    def _ends_data(self, unit: Unit, handler: cst.CSTNode) -> bool:
        """Whether a handler is there for the end of an iterator, to which all processes come together."""
        attempt = unit.names.parents.get(handler)
        return isinstance(attempt, cst.Try) and only_draws(self.state, attempt.body)

    def _is_own_part(self, unit: Unit, iterated: cst.BaseExpression) -> bool:
        """Whether a loop goes over a part that each process has of its own: the parts may differ in length."""
        if self._has_number(iterated):
            return True
        for name in descendants(iterated):
            binding = unit.names.binding(name) if isinstance(name, cst.Name) else None
            for definition in binding.definitions if binding is not None else ():
                item = next(unit.names.enclosing(definition, cst.WithItem), None)
                if isinstance(item, cst.WithItem):
                    given: cst.CSTNode | None = item.item
                    if isinstance(given, cst.Call) and last_name(given.func) == "split_between_processes":
                        return True
                values = bindings_value(unit.names, binding, [definition]) if binding is not None else []
                if any(isinstance(v, cst.Subscript) and any(map(self._has_number, v.slice)) for v in values):
                    return True
        return False

    def _has_number(self, expression: cst.CSTNode) -> bool:
        """Whether an expression computes with the number of this process. A bar that is disabled elsewhere does not,
        nor a loader with a ``DistributedSampler``, which gives as many rows to each process."""
        calls = nodes_in(expression, cst.Call)
        samplers = [call for call in calls if any(map(is_distributed_sampler, self._names_called(call)))]
        apart = {node for call in samplers for node in descendants(call)}
        numbers = (part for part in nodes_in(expression, cst.Attribute) if part.attr.value in _NUMBERS)
        return any(part not in apart for part in numbers)

    def _looks_for_own_file(self, statement: cst.CSTNode) -> bool:
        """Whether a condition asks for a file that the block under it makes, or takes away: who comes later goes by."""
        if not isinstance(statement, cst.If) or not any(map(asks_existence, self._names_called(statement.test))):
            return False
        names = self._names_called(statement.body)
        if if_missing(statement) is not statement.body:
            return any(map(takes_away, names))
        return any(writes(name) or fetches(name) for name in names)

    def _names_called(self, node: cst.CSTNode) -> Iterator[str]:
        calls = self.state.calls
        return (outside_name(calls[one]) for one in nodes_in(node, cst.Call) if one in calls)

    def _left(self, unit: Unit, block: cst.IndentedBlock | cst.Module, below: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The earlier statements of a block at which some processes leave it."""
        if block not in self._leavings:
            self._leavings[block] = [*self._leaving_at(unit, block)]
        here = unit.names.order(below)
        return (left for statement, left in self._leavings[block] if here < 0 or unit.names.order(statement) < here)

    def _leaving_at(
        self, unit: Unit, block: cst.IndentedBlock | cst.Module
    ) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
        """The statements of a block at which some processes leave it, each with where in it they do."""
        for statement in block.body:
            if isinstance(statement, cst.If) and self.asks(unit, statement.test):
                if self._leaves(unit, statement, _JUMPS):
                    yield statement, statement
            elif isinstance(statement, cst.BaseCompoundStatement) and type(statement) not in _CLOSED:
                yield from ((statement, left) for left in self._partings(unit, statement, in_loop=True))

    def _partings(self, unit: Unit, node: cst.CSTNode, in_loop: bool = False) -> list[cst.If]:
        """
        Conditions on the rank in a statement or a body, at which some processes leave it for good.

        They return; or they break out of it, unless that is out of a loop of its own (`in_loop`).
        """
        if (node, in_loop) not in self._parted:
            self._parted[node, in_loop] = list(self._parting(unit, node, in_loop))
        return self._parted[node, in_loop]

    def _parting(self, unit: Unit, node: cst.CSTNode, in_loop: bool) -> Iterator[cst.If]:
        for child in children(node):
            if type(child) in _CLOSED or not isinstance(child, _NESTED):
                continue
            jumps = (cst.Return,) if in_loop else (cst.Return, cst.Break)
            if isinstance(child, cst.If) and self.asks(unit, child.test) and self._leaves(unit, child, jumps):
                yield child
            else:
                own = isinstance(child, (cst.For, cst.While))
                yield from self._partings(unit, child, in_loop or own)

    def _leaves(self, unit: Unit, statement: cst.If, jumps: tuple[type[cst.CSTNode], ...]) -> bool:
        """
        Whether a statement takes a process past what follows, while the other processes go on.

        A process that raises, or exits with an error, ends the whole job: the others do not wait for it for long.
        """
        for node in _leaving(statement):
            if isinstance(node, jumps) or self._exits(node):
                return True
            if isinstance(node, cst.Raise) and (_is_caught(unit, statement, node) or quiet_exit(node)):
                return True
        return False

    def _exits(self, node: cst.CSTNode) -> bool:
        """Whether a call ends the process without an error."""
        record = self.state.calls.get(node) if isinstance(node, cst.Call) else None
        return record is not None and ends_process(outside_name(record)) and exits_quietly(record.node)

    @cached_property
    def apart(self) -> dict[Code, list[tuple[CodePlace, Constants]]]:
        """
        The functions that are called where not every process arrives, each with the places that decide this, and the
        constants that the call gives.

        What an exception handler calls is left out: a script that trains again after an error does so by itself.
        """
        found: dict[Code, list[tuple[CodePlace, Constants]]] = {}
        constants = constants_of(self.state)
        for unit in self.reach.units:
            for call in unit.names.calls:
                if not self.reach.called(call) or unit.names.function(call) not in self.reach.reachable:
                    continue
                guard = next((g for g in self.around(unit, call) if not isinstance(g.node, HANDLERS)), None)
                if guard is not None:
                    for code, given in below(constants, self.reach, call).items():
                        found.setdefault(code, []).extend((guard, known) for known in given)
        return found

    def called_apart(self, unit: Unit, node: cst.CSTNode) -> Iterator[CodePlace]:
        """Why not every process reaches a node, as far as the calls of its function decide it."""
        given, constants = self.apart.get(unit.names.function(node), ()), constants_of(self.state)
        return (guard for guard, known in given if not constants.excluded_by(unit, node, dict(known)))

    def of(self, unit: Unit, node: cst.CSTNode) -> CodePlace | None:
        """Why not every process reaches a node: in its own function, or in one that calls it."""
        return next(self.around(unit, node), None) or next(self.called_apart(unit, node), None)

    def always(self, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()) -> bool:
        """Whether a node always runs under a condition on the rank, however its function is reached."""
        if any(not isinstance(p.node, HANDLERS) for p in self.around(unit, node)):
            return True
        code = unit.names.function(node)
        reachable = (site for site in self.reach.sites(code) if self.reach.function_of(site) in self.reach.reachable)
        sites = [self.state.calls[site] for site in reachable]
        if code in seen or not sites:
            return False
        return all(self.always(site.unit, site.node, seen | {code}) for site in sites)


def last_name(node: cst.CSTNode) -> str:
    """The last name of a dotted expression; empty for other expressions."""
    return node.attr.value if isinstance(node, cst.Attribute) else getattr(node, "value", "")


def _is_caught(unit: Unit, statement: cst.If, node: cst.Raise) -> bool:
    """Whether an exception is caught outside of a statement, in the same function: the process goes on there."""
    below: cst.CSTNode = node
    inside = True
    for around in unit.names.ancestors(node):
        if type(around) in _CLOSED:
            break
        if isinstance(around, (cst.Try, cst.TryStar)) and below is around.body:
            if any(not _raises_again(handler) for handler in around.handlers):
                return not inside
        inside = inside and around is not statement
        below = around
    return False


def _raises_again(handler: cst.ExceptHandler | cst.ExceptStarHandler) -> bool:
    last = handler.body.body[-1] if handler.body.body else None
    ends = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
    return isinstance(ends, cst.Raise)


def _leaving(statement: cst.If) -> Iterator[cst.CSTNode]:
    """The nodes of a statement that may leave the block around it, without the jumps of its own loops."""
    pending: list[cst.CSTNode] = [statement]
    while pending:
        node = pending.pop()
        yield node
        for child in children(node):
            if type(child) in _CLOSED:
                continue
            if isinstance(node, (cst.For, cst.While)) and child is node.body:
                pending += [n for n in descendants(child, _CLOSED) if isinstance(n, (cst.Return, cst.Raise, cst.Call))]
            else:
                pending.append(child)
