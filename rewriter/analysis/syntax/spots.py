"""Some nodes of a module, of which it is asked again and again whether one is below another node."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import libcst as cst

from .names import Names


class Spots:
    """
    Some nodes of a module.

    Args:
        names: the module.
        nodes: those that are looked for.
    """

    def __init__(self, names: Names, nodes: Iterable[cst.CSTNode]) -> None:
        self._names, self._orders = names, sorted(map(names.order, nodes))

    def below(self, node: cst.CSTNode) -> bool:
        """Whether a node is one of them, or something below it is."""
        place = bisect_left(self._orders, self._names.order(node))
        return place < len(self._orders) and self._orders[place] <= self._names.end(node)
