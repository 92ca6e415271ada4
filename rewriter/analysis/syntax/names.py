"""
Names: which variable a name refers to, and where everything is in the tree.

LibCST's metadata providers answer the same questions ten times slower than the one walk of `resolving`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import NamedTuple, overload

import libcst as cst

from .nodes import FUNCTIONS, FunctionNode
from .scopes import Binding, Scope
from .walk import One, Three, Two

LoopNode = cst.For | cst.While
LONGEST = 60
"""Longer code is not repeated in a sentence."""
_BLOCKS = frozenset({cst.IndentedBlock, cst.Module, cst.SimpleStatementSuite})


class Ranked(NamedTuple):
    """The definitions of a variable in the order of the source."""

    nodes: list[cst.CSTNode]
    orders: list[int]
    """Their places."""
    given: Sequence[cst.CSTNode] | None
    """As they were listed, where that is another order."""

    @classmethod
    def of(cls, definitions: Sequence[cst.CSTNode], order: Callable[[cst.CSTNode], int]) -> Ranked:
        """Some definitions, ranked."""
        orders = [order(node) for node in definitions]
        if all(one <= two for one, two in pairwise(orders)):
            return cls([*definitions], orders, None)
        nodes = sorted(definitions, key=order)
        return cls(nodes, sorted(orders), definitions)

    def told(self, found: Sequence[cst.CSTNode]) -> tuple[cst.CSTNode, ...]:
        """Some of them, in the order in which they were listed."""
        if self.given is None:
            return tuple(found)
        these = set(found)
        return tuple(node for node in self.given if node in these)


@dataclass(eq=False)
class Names:
    """Every name of a module resolved, and the shape of its tree."""

    module: cst.Module
    scope: Scope
    parents: dict[cst.CSTNode, cst.CSTNode] = field(default_factory=dict)
    scopes: dict[cst.CSTNode, Scope] = field(default_factory=dict)
    """The scope that a module, function, lambda, class or comprehension opens."""
    within: dict[cst.CSTNode, Scope] = field(default_factory=dict)
    """The scope that contains a name, call, attribute, loop or statement."""
    calls: list[cst.Call] = field(default_factory=list)
    loops: list[LoopNode] = field(default_factory=list)
    functions: list[FunctionNode] = field(default_factory=list)
    classes: list[cst.ClassDef] = field(default_factory=list)
    stars: list[str] = field(default_factory=list)
    """Modules whose names came in through ``from m import *``."""
    returns: dict[cst.CSTNode, list[cst.Return]] = field(default_factory=dict)
    """For a function its ``return`` statements."""
    unshadowed: dict[tuple[Binding, cst.CSTNode], tuple[cst.CSTNode, ...]] = field(default_factory=dict)
    """What ``definitions.unshadowed`` has found: many ask about the same read."""
    ranked: dict[Binding, Ranked] = field(default_factory=dict)
    """The definitions of a variable in their order, as far as ``definitions`` has asked for them; so are the next."""
    jumps: dict[cst.CSTNode, list[int]] = field(default_factory=dict)
    """For a block, the places of the jumps in it."""
    ends_after: dict[cst.CSTNode, bool | None] = field(default_factory=dict)
    """Whether what follows a statement in its block ends the loop."""
    ended: dict[tuple[cst.CSTNode, cst.CSTNode], bool] = field(default_factory=dict)
    """Whether a loop always ends after a node."""
    blocks: dict[cst.CSTNode, cst.CSTNode] = field(default_factory=dict)
    """The block that a node runs with."""
    texts: dict[cst.CSTNode, str] = field(default_factory=dict)
    """The code of a condition, without parentheses around it, as far as somebody has asked for it."""
    choices: dict[cst.If, cst.If] = field(default_factory=dict)
    """For an ``elif`` the ``if`` that it goes on."""
    _of_kind: dict[type[cst.CSTNode], list[cst.CSTNode]] = field(default_factory=dict)
    _sorted: int = 0
    """So many nodes are among those by kind."""
    _order: dict[cst.CSTNode, int] = field(default_factory=dict)
    _ends: dict[cst.CSTNode, int] = field(default_factory=dict)
    _functions: dict[cst.CSTNode, cst.CSTNode] = field(default_factory=dict)

    def one_line(self, node: cst.CSTNode) -> str:
        """The code of a node on one line, for a sentence."""
        return " ".join(self.module.code_for_node(node).split())

    def binding(self, name: cst.Name) -> Binding | None:
        """The variable that this name node reads or writes."""
        scope = self.within.get(name)
        return scope.lookup(name.value) if scope else None

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node, from the inside out."""
        found = self.parents.get(node)
        while found is not None:
            yield found
            found = self.parents.get(found)

    def outwards(self, node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
        """The nodes around a node in its function, each with the part of it that contains the node."""
        below = node
        for around in self.ancestors(node):
            if around.__class__ in FUNCTIONS:
                return
            yield around, below
            below = around

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The statement of a block that contains a node: a line of small statements, or a compound statement."""
        here = node
        for around in self.ancestors(node):
            if around.__class__ in _BLOCKS:
                return here
            here = around
        return here

    def block(self, node: cst.CSTNode) -> cst.CSTNode:
        """The block (indented block, suite or module) that contains the statement around a node."""
        statement = self.statement(node)
        return self.parents.get(statement, self.module)

    @overload
    def every(self, one: type[One], /) -> Iterator[One]: ...
    @overload
    def every(self, one: type[One], two: type[Two], /) -> Iterator[One | Two]: ...
    @overload
    def every(self, one: type[One], two: type[Two], three: type[Three], /) -> Iterator[One | Two | Three]: ...
    @overload
    def every(self, *kinds: type[cst.CSTNode]) -> Iterator[cst.CSTNode]: ...
    def every(self, *kinds: type[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        """The nodes of some kinds, in the order of the walk."""
        if len(self.parents) != self._sorted:
            self._sorted = len(self.parents)
            self._of_kind.clear()
            for node in self.parents:
                self._of_kind.setdefault(node.__class__, []).append(node)
        found = [self._of_kind[kind] for kind in kinds if kind in self._of_kind]
        return iter(found[0] if len(found) == 1 else sorted(chain.from_iterable(found), key=self.order))

    def order(self, node: cst.CSTNode) -> int:
        """The position of a node in the source, as a number to compare with others."""
        if not self._order:
            # ``parents`` is filled in the order of the walk, which is that of the source within a statement list.
            self._order = dict(zip(self.parents, range(len(self.parents)), strict=True))
        return self._order.get(node, -1)

    def end(self, node: cst.CSTNode) -> int:
        """The position of the last node below one."""
        if not self._ends:
            ends = dict(zip(self.parents, range(len(self.parents)), strict=True))
            for below, parent in reversed(self.parents.items()):  # nodes below come later
                ends[parent] = max(ends.get(parent, -1), ends[below])
            self._ends = ends
        return self._ends.get(node, -1)

    def function(self, node: cst.CSTNode) -> cst.CSTNode:
        """The function (or lambda) whose body runs a node; the module where there is none."""
        if not self._functions:
            found = self._functions
            for below, parent in self.parents.items():  # what is above comes in front
                runs = parent.__class__ in FUNCTIONS and below is parent.body
                found[below] = parent if runs else found.get(parent, self.module)
        return self._functions.get(node, self.module)

    @overload
    def enclosing(self, node: cst.CSTNode, one: type[One], /) -> Iterator[One]: ...
    @overload
    def enclosing(self, node: cst.CSTNode, one: type[One], two: type[Two], /) -> Iterator[One | Two]: ...
    @overload
    def enclosing(
        self, node: cst.CSTNode, one: type[One], two: type[Two], three: type[Three], /
    ) -> Iterator[One | Two | Three]: ...
    @overload
    def enclosing(self, node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> Iterator[cst.CSTNode]: ...
    def enclosing(self, node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> Iterator[cst.CSTNode]:
        """The nodes of the given kinds around a node within its own function, from the inside out."""
        for around in self.ancestors(node):
            if around.__class__ in FUNCTIONS:
                return
            if isinstance(around, kinds):
                yield around
