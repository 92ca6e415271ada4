"""
The same code twice, with mixed precision and without: ``if use_amp: ... else: ...``, which the accelerator needs once.

Two branches are the same if they are once the regions are entered and the scaler is taken away from the one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from ..dataflow.values import Unit
from ..syntax.names import Names
from ..syntax.walk import nodes_in
from .regions import Region
from .scalers import Scaler
from .switches import Switch

_WORK = frozenset({"backward", "step"})


@dataclass(eq=False)
class Branches:
    """An ``if`` with mixed precision on one side."""

    unit: Unit
    node: cst.If
    on: bool
    """The first side is the one with mixed precision."""
    same: bool
    """The sides are the same otherwise."""

    @property
    def switch(self) -> Switch:
        """The condition under which mixed precision is on."""
        return Switch(self.unit, self.node.test, self.on)

    @property
    def dropped(self) -> cst.CSTNode | None:
        """The side without mixed precision."""
        return self.node.orelse if self.on else self.node.body


def find_branches(units: Iterable[Unit], regions: Sequence[Region], scaler: Scaler) -> Iterator[Branches]:
    """The ``if`` statements that keep the training with and without mixed precision apart."""
    marks: list[cst.CSTNode] = [*scaler.methods, *(item for region in regions for _, item in region.items)]
    found: dict[cst.If, tuple[Unit, set[bool]]] = {}
    for unit in units:
        for mark in marks:
            if mark in unit.names.parents:
                for node, first in _around(unit.names, mark):
                    found.setdefault(node, (unit, set()))[1].add(first)
    for node, (unit, sides) in found.items():
        if len(sides) == 1 and isinstance(node.orelse, (cst.Else, type(None))):
            read = _Reading(unit.names, regions, scaler)
            on = sides == {True}
            one, other = read.side(node.body if on else node.orelse), read.side(node.orelse if on else node.body)
            works = node.orelse is not None and read.works(node.body) and read.works(node.orelse)
            if works or one == other:
                yield Branches(unit, node, on, one == other)


def _around(names: Names, mark: cst.CSTNode) -> Iterator[tuple[cst.If, bool]]:
    """The ``if`` statements around a node, those that are an ``elif`` apart, and whether it is on their first side."""
    here = mark
    for around in names.ancestors(mark):
        if isinstance(around, (cst.FunctionDef, cst.Lambda, cst.ClassDef)):
            return
        if isinstance(around, cst.If) and not isinstance(names.parents.get(around), cst.If) and here is not around.test:
            yield around, here is around.body
        here = around


class _Reading:
    """Reads the sides of a branch as they would be without mixed precision."""

    def __init__(self, names: Names, regions: Sequence[Region], scaler: Scaler) -> None:
        self.names = names
        items = [item for region in regions for _, item in region.items if item in names.parents]
        self.regions = {_spelled(names, item.item) for item in items}
        calls = [call for call in scaler.methods if call in names.parents]
        self.scalers = {_spelled(names, c.func.value) for c in calls if isinstance(c.func, cst.Attribute)}

    def side(self, node: cst.CSTNode | None) -> list[str]:
        """The statements of a side, in a form to compare."""
        if node is None:
            return []
        block = node.body if isinstance(node, cst.Else) else node
        body = getattr(block, "body", ())
        if isinstance(block, cst.SimpleStatementSuite):
            body = [cst.SimpleStatementLine(block.body)]
        text = cst.Module(body=list(body), default_indent=self.names.module.default_indent).code
        tree = _Plain(self.regions, self.scalers).visit(ast.parse(text))
        return [ast.dump(statement) for statement in tree.body]

    def works(self, node: cst.CSTNode) -> bool:
        """Whether a side trains."""
        return any(n.attr.value in _WORK for n in nodes_in(node, cst.Attribute))


def _spelled(names: Names, node: cst.BaseExpression) -> str:
    """An expression in one way of writing it."""
    return ast.unparse(ast.parse(names.module.code_for_node(node).strip()))


class _Plain(ast.NodeTransformer):
    """Takes regions and the scaler out of code."""

    def __init__(self, regions: set[str], scalers: set[str]) -> None:
        self.regions, self.scalers = regions, scalers

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        """``with autocast(): ...`` without the region."""
        self.generic_visit(node)
        node.items = [item for item in node.items if ast.unparse(item.context_expr) not in self.regions]
        return node if node.items else node.body

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Nothing for ``scaler.unscale_(optimizer)`` and ``scaler.update()``."""
        if self._method(node.value) in ("unscale_", "update"):
            return None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The loss for ``scaler.scale(loss)``, ``optimizer.step()`` for ``scaler.step(optimizer)``."""
        self.generic_visit(node)
        name = self._method(node)
        if name == "scale" and node.args:
            return node.args[0]
        if name == "step" and node.args:
            return ast.Call(ast.Attribute(node.args[0], "step", ast.Load()), [], [])
        return node

    def _method(self, node: ast.expr) -> str:
        func = node.func if isinstance(node, ast.Call) else None
        if isinstance(func, ast.Attribute) and ast.unparse(func.value) in self.scalers:
            return func.attr
        return ""
