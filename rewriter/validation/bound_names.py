"""
Every name that an edit reads is bound on all paths that lead to the read.

The paths are followed through branches, jumps and handlers. A name that is bound under a condition is also bound under
the same condition later. A loop is assumed to run at least once: whether it does is the script's own business.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.values import Unit
from ..analysis.syntax.nodes import dotted
from ..analysis.syntax.scopes import Binding, Scope, ScopeKind
from ..analysis.syntax.walk import children
from .violation import Violation

_OWN: tuple[type[cst.CSTNode], ...] = (cst.FunctionDef, cst.ClassDef, cst.Lambda)
_ENDS = frozenset({"sys.exit", "exit", "quit", "os._exit", "os.abort"})
_GIVEN = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__spec__", "__path__", "__class__"}


def unbound(unit: Unit) -> Iterator[Violation]:
    """The reads of a module that on some path come before their name has a value."""
    for code, scope in unit.names.scopes.items():
        if scope.kind in (ScopeKind.FUNCTION, ScopeKind.MODULE) and not isinstance(code, cst.Lambda):
            yield from _Paths(unit, scope).run()


def late(unit: Unit) -> Iterator[Violation]:
    """The reads in functions of names that the module binds on some of its paths only."""
    names = unit.names
    ended = _Paths(unit, names.scopes[names.module]).ended()
    if ended is None:
        return
    for binding in names.scopes[names.module].bindings.values():
        own = all(names.function(definition) is names.module for definition in binding.definitions)
        if binding in ended or not binding.definitions or not own:
            continue
        for read in binding.reads:
            if names.function(read) is not names.module:
                words = f"`{binding.name}` is read here, but the module binds it on some paths only"
                yield Violation("name-bound", CodePlace(unit, read), words, CodePlace(unit, binding.definitions[0]))


def unknown(unit: Unit) -> Iterator[Violation]:
    """The reads of a module of names that nothing binds; with a star import, of those that it may bring, too."""
    for name in unit.names.every(cst.Name):
        assert isinstance(name, cst.Name)
        if name not in unit.names.within or name.value in _GIVEN or unit.names.binding(name) is not None:
            continue
        parent = unit.names.parents.get(name)
        if isinstance(parent, cst.Arg) and parent.value is not name:
            continue  # a keyword
        if isinstance(parent, cst.Global) or (isinstance(parent, cst.Attribute) and parent.attr is name):
            continue
        yield Violation("name-bound", CodePlace(unit, name), f"`{name.value}` is read here, but nothing binds it")


class _Known(NamedTuple):
    """Which names are bound at a reachable point: always, and under which conditions."""

    bound: frozenset[Binding]
    gated: dict[tuple[str, bool], frozenset[Binding]]

    def plus(self, more: frozenset[Binding]) -> _Known:
        return self if more <= self.bound else self._replace(bound=self.bound | more)

    def gate(self, more: dict[tuple[str, bool], frozenset[Binding]]) -> _Known:
        gated = self.gated
        for condition, names in more.items():
            if names:
                gated = gated.copy() if gated is self.gated else gated
                gated[condition] = gated.get(condition, frozenset()) | names
        return self if gated is self.gated else self._replace(gated=gated)


def _join(states: Sequence[_Known | None]) -> _Known | None:
    """What is bound on all of some paths; None if none of them continues."""
    alive = [state for state in states if state is not None]
    if not alive:
        return None
    first, *others = alive
    gated = first.gated
    if any(other.gated is not gated for other in others):  # most code adds nothing to what conditions tell
        gated = {
            condition: names.intersection(*(o.gated.get(condition, frozenset()) | o.bound for o in others))
            for condition, names in gated.items()
        }
    return _Known(first.bound.intersection(*(other.bound for other in others)), gated)


class _Paths:
    """The paths through one function, or through a module's own code."""

    def __init__(self, unit: Unit, scope: Scope) -> None:
        self.unit, self.scope = unit, scope
        self.reads = {read: b for b in scope.bindings.values() for read in b.reads}
        self.binds: dict[cst.CSTNode, Binding] = {d: b for b in scope.bindings.values() for d in b.definitions}
        self.by_calls = frozenset(b for d, b in self.binds.items() if unit.names.function(d) is not scope.node)
        """What functions that declare it ``global`` or ``nonlocal`` bind: from a call of a function of the file on."""
        self.found: dict[cst.CSTNode, Binding] = {}
        self.turns: list[tuple[list[_Known | None], list[_Known | None]]] = []
        """For each enclosing loop: what is known at its exits, and at the start of its next iteration."""
        self.as_script = False
        """`if __name__ == "__main__":` holds."""

    def run(self) -> Iterator[Violation]:
        node = self.scope.node
        start = _Known(frozenset(), {})
        if isinstance(node, cst.FunctionDef):
            start = start.plus(frozenset(b for d, b in self.binds.items() if self._is_parameter(d)))
            self._block(node.body, start)
        else:
            self._block(node, start)
        for read, binding in self.found.items():
            other = CodePlace(self.unit, binding.definitions[0]) if binding.definitions else None
            words = f"`{binding.name}` is read here, but on some path to this place it has no value"
            yield Violation("name-bound", CodePlace(self.unit, read), words, other)

    def ended(self) -> frozenset[Binding] | None:
        """What is bound at the end of a module that runs as a script; None where no path leads there."""
        assert isinstance(self.scope.node, cst.Module)
        self.as_script = True
        end = self._block(self.scope.node, _Known(frozenset(), {}))
        return end.bound if end is not None else None

    def _is_parameter(self, definition: cst.CSTNode) -> bool:
        return isinstance(definition, cst.Param) or isinstance(self.unit.names.parents.get(definition), cst.Param)

    def _block(self, block: cst.CSTNode, state: _Known | None) -> _Known | None:
        for statement in getattr(block, "body", ()):
            if state is None:
                return None
            state = self._statement(statement, state)
        return state

    def _statement(self, node: cst.CSTNode, state: _Known) -> _Known | None:
        if isinstance(node, (cst.SimpleStatementLine, cst.SimpleStatementSuite)):
            return self._block(node, state)
        if isinstance(node, cst.If):
            return self._if(node, state)
        if isinstance(node, (cst.For, cst.While)):
            return self._loop(node, state)
        if isinstance(node, (cst.Try, cst.TryStar)):
            return self._try(node, state)
        if isinstance(node, cst.With):
            return self._block(node.body, self._expressions(node.items, state))
        if isinstance(node, cst.Match):
            state = self._expressions([node.subject], state)
            ends = [self._block(case.body, self._expressions([case.pattern], state)) for case in node.cases]
            return _join([state, *ends])
        return self._small(node, state)

    def _small(self, node: cst.CSTNode, state: _Known) -> _Known | None:
        state = self._expressions([node], state)
        if isinstance(node, (cst.Return, cst.Raise)):
            return None
        if isinstance(node, cst.Break) and self.turns:
            self.turns[-1][0].append(state)
            return None
        if isinstance(node, cst.Continue) and self.turns:
            self.turns[-1][1].append(state)
            return None
        call = node.value if isinstance(node, cst.Expr) else None
        return None if isinstance(call, cst.Call) and dotted(call.func) in _ENDS else state

    def _expressions(self, nodes: Sequence[cst.CSTNode], state: _Known) -> _Known:
        """Check the reads in some expressions (or a small statement), then bind what they bind."""
        bound: set[Binding] = set()
        for node in self._inside(nodes):
            if node in self.binds:
                bound.add(self.binds[node])
            elif (binding := self.reads.get(node)) is not None and binding not in state.bound:  # type: ignore[call-overload]
                if binding not in bound or not self._walrus(nodes):
                    self.found.setdefault(node, binding)
        if self.by_calls and any(self._calls_own(node) for node in self._inside(nodes)):
            bound |= self.by_calls
        return state.plus(frozenset(bound))

    def _calls_own(self, node: cst.CSTNode) -> bool:
        """Whether a node is a call of a function that the file defines."""
        name = node.func if isinstance(node, cst.Call) else None
        function = self.unit.names.binding(name) if isinstance(name, cst.Name) else None
        return function is not None and any(isinstance(d, cst.FunctionDef) for d in function.definitions)

    def _walrus(self, nodes: Sequence[cst.CSTNode]) -> bool:
        return any(isinstance(node, cst.NamedExpr) for node in self._inside(nodes))

    def _inside(self, nodes: Sequence[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        pending = list(reversed(nodes))
        while pending:
            node = pending.pop()
            yield node
            if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
                pending += [*node.decorators]
            elif not isinstance(node, _OWN):
                pending += reversed(children(node))

    def _if(self, node: cst.If, state: _Known) -> _Known | None:
        state = self._expressions([node.test], state)
        text, yes = self._condition(node.test)
        then = self._block(node.body, self._entered(node.test, state, True))
        if (self.as_script and "__name__" in text and "__main__" in text) or (yes and text == "True"):
            return then
        other: _Known | None = self._entered(node.test, state, False)
        if isinstance(node.orelse, cst.If):
            other = self._statement(node.orelse, other) if other is not None else None
        elif node.orelse is not None:
            other = self._block(node.orelse.body, other)
        joined = _join([then, other])
        if joined is None or then is None or other is None:
            return joined
        return joined.gate({(text, yes): then.bound - joined.bound, (text, not yes): other.bound - joined.bound})

    def _condition(self, test: cst.BaseExpression) -> tuple[str, bool]:
        yes = True
        while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            test, yes = test.expression, not yes
        texts = self.unit.names.texts
        if test not in texts:
            texts[test] = self.unit.names.module.code_for_node(test.with_changes(lpar=[], rpar=[]))
        return texts[test], yes

    def _entered(self, test: cst.BaseExpression, state: _Known, holds: bool) -> _Known:
        """What is known if a condition is true, or if it is false."""
        text, yes = self._condition(test)
        state = state.plus(state.gated.get((text, yes is holds), frozenset()))
        joiner = cst.And if holds else cst.Or
        if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, joiner):
            state = self._entered(test.left, state, holds)
            state = self._entered(test.right, state, holds)
        return state

    def _loop(self, node: cst.For | cst.While, state: _Known) -> _Known | None:
        if isinstance(node, cst.For):
            state = self._expressions([node.iter], state)
            inside = self._expressions([node.target], state)
        else:
            inside = self._entered(node.test, self._expressions([node.test], state), True)
        self.turns.append(([], []))
        ended = self._block(node.body, inside)
        left, again = self.turns.pop()
        endless = isinstance(node, cst.While) and dotted(node.test) == "True"
        after = None if endless else _join([ended, *again])
        if node.orelse is not None:
            after = self._block(node.orelse.body, after)
        return _join([after, *left])

    def _try(self, node: cst.Try | cst.TryStar, state: _Known) -> _Known | None:
        ended = self._block(node.body, state)
        if node.orelse is not None:
            ended = self._block(node.orelse.body, ended)
        ends = [ended]
        for handler in node.handlers:
            parts = [part for part in (handler.type, handler.name) if part is not None]
            ends.append(self._block(handler.body, self._expressions(parts, state)))
        after = _join(ends)
        if node.finalbody is None:
            return after
        last = self._block(node.finalbody.body, after if after is not None else state)
        return last if after is not None else None
