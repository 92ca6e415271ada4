"""The arguments of a call, with the layout of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import libcst as cst

from ...dataflow.constants import Values
from ...syntax.nodes import keyword
from ..loss_arguments import Constant
from .layout import (
    REPLICATED,
    Layout,
)
from .shapes import integer


@dataclass
class Arguments:
    """The arguments of a call, with the layout of each."""

    node: cst.Call
    constant: Constant = lambda name, position: None
    value: Callable[[cst.BaseExpression], Values] = lambda node: None
    """What an expression of the call is by constants of the program."""
    base: Layout | None = None
    """Of the object, for a method of a tensor."""
    plain: list[tuple[cst.BaseExpression, Layout]] = field(default_factory=list)
    named: dict[str, tuple[cst.BaseExpression, Layout]] = field(default_factory=dict)
    """Those with a keyword; by ``**`` what is in a table whose keys are not known."""

    def operand(self) -> Layout:
        """What the operation is of: the object, or the first argument."""
        if self.base is not None:
            return self.base
        if self.plain:
            return self.plain[0][1]
        words = ("input", "x", "a", "**")
        return next((layout for name, (_, layout) in self.named.items() if name in words), REPLICATED)

    def layouts(self) -> list[Layout]:
        """Of the object and all arguments."""
        found = [self.base] if self.base is not None else []
        return [*found, *(layout for _, layout in self.plain), *(layout for _, layout in self.named.values())]

    def dimension(self, place: int | None, word: str) -> cst.BaseExpression | None:
        """The argument that names the dimension."""
        return keyword(self.node, word, place) or keyword(self.node, "axis") or keyword(self.node, "dim")

    def number(self, node: cst.BaseExpression) -> int | None:
        """A whole number that is written out, or is a constant: ``len(KINDS)``."""
        written = integer(node)
        known = self.value(node) if written is None else None
        only = next(iter(known)) if known is not None and len(known) == 1 else None
        return only if isinstance(only, int) and not isinstance(only, bool) else written

    def from_place(self, place: int | None) -> list[tuple[cst.BaseExpression, Layout]]:
        """The arguments from a position on, or the one by a keyword that names a dimension or a shape."""
        words = ("dim", "dims", "start_dim", "shape", "size", "sizes", "axis")
        asked = [pair for name, pair in self.named.items() if name in words]
        return [*(self.plain[place:] if place is not None else []), *asked]
