"""Whether some of a set of nodes runs with another node: asked of many places, and walked only where one can be met."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from .call_graph import Code, Reach


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
        pending: list[Iterable[cst.CSTNode]] = [self._reach.parts(node)]
        while pending:
            for found in pending.pop():
                if found in self._nodes:
                    return found
                for function in self._reach.called_at(found):
                    if function not in seen and function in self._codes:
                        seen.add(function)
                        pending.append(self._reach.own(function))
        return None

    def _code(self, node: cst.CSTNode) -> Code:
        return self._reach.unit_of(node, self._reach.units[0]).names.function(node)
