"""Whether some of a set of nodes runs with another node: asked of many places, and walked only where one can be met."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import libcst as cst

from ..syntax.walk import children
from .call_graph import WAITING, Code, Reach
from .values import Unit


class Met:
    """
    The first of some nodes that runs with another one.

    Args:
        reach: the call graph.
        nodes: those that are looked for.
    """

    def __init__(self, reach: Reach, nodes: Iterable[cst.CSTNode]) -> None:
        self._reach, self._nodes = reach, frozenset(nodes)
        self._codes = reach.reached_from(map(self._code, self._nodes))
        """All code that comes to one of them."""
        self._firsts: dict[cst.CSTNode, cst.CSTNode | None] = {}
        """What was asked: each condition of a loop asks what runs in its turns."""

    def first(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The first of the nodes among what runs when a node does, in the order of ``Reach.runs``."""
        if node not in self._firsts:
            self._firsts[node] = self._first(node)
        return self._firsts[node]

    def _first(self, node: cst.CSTNode) -> cst.CSTNode | None:
        seen: set[Code] = set()
        starts = [node]
        while starts:
            pending = [starts.pop()]
            while pending:
                found = pending.pop()
                if found not in self._leads:
                    continue
                if found in self._nodes:
                    return found
                for function in self._reach.called_at(found):
                    if function not in seen and function in self._codes:
                        seen.add(function)
                        starts.append(function.body)
                if found.__class__ not in WAITING:
                    pending += children(found)[::-1]
        return None

    @cached_property
    def _leads(self) -> set[cst.CSTNode]:
        """The nodes with one of them below, or with a call of what comes to one: nothing else is walked through."""
        found: set[cst.CSTNode] = set()
        for node in (*self._nodes, *self._reach.calls_of(self._codes)):
            parents = self._unit(node).names.parents
            while node is not None and node not in found:
                found.add(node)
                above = parents.get(node)
                if above is None or above.__class__ in WAITING:
                    break
                node = above
        return found

    def _unit(self, node: cst.CSTNode) -> Unit:
        record = self._reach.state.calls.get(node) if isinstance(node, cst.Call) else None
        return record.unit if record is not None else self._reach.unit_of(node, self._reach.units[0])

    def _code(self, node: cst.CSTNode) -> Code:
        return self._unit(node).names.function(node)
