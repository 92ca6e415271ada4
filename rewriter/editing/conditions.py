"""Conditions: which can go without an effect, and which have two branches that do the same after the edits."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from ..analysis.syntax.alike import alike
from .edits import contents, speaks_of_device, speaks_of_moving

_OPPOSITE: dict[type[cst.BaseCompOp], type[cst.BaseCompOp]] = {
    cst.Is: cst.IsNot,
    cst.IsNot: cst.Is,
    cst.In: cst.NotIn,
    cst.NotIn: cst.In,
}
"""Of what no class can define: ``a != b`` may be another thing than ``not a == b``."""


def opposite(test: cst.BaseExpression) -> cst.BaseExpression:
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return test.expression
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        other = _OPPOSITE.get(type(test.comparisons[0].operator))
        if other is not None:
            return test.with_changes(comparisons=[test.comparisons[0].with_changes(operator=other())])
    simple = isinstance(test, (cst.Name, cst.Attribute, cst.Call))
    inner = test if simple else test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.UnaryOperation(cst.Not(), inner)


def pure(test: cst.BaseExpression) -> bool:
    """Whether a condition can be removed without losing an effect: names, comparisons, checks of availability."""
    if isinstance(test, cst.Call):
        asked = all(pure(arg.value) for arg in test.args)
        if isinstance(test.func, cst.Name):
            return asked and test.func.value in ("len", "bool", "isinstance", "hasattr")
        name = test.func.attr.value if isinstance(test.func, cst.Attribute) else ""
        return asked and name in ("is_available", "is_initialized", "device_count", "is_built", "get")
    if isinstance(test, cst.Subscript):
        parts = [element.slice for element in test.slice]
        return pure(test.value) and all(isinstance(part, cst.Index) and pure(part.value) for part in parts)
    if isinstance(test, (cst.Name, cst.Attribute, cst.Integer, cst.SimpleString)):
        return True
    if isinstance(test, cst.UnaryOperation):
        return pure(test.expression)
    if isinstance(test, cst.BooleanOperation):
        return pure(test.left) and pure(test.right)
    if isinstance(test, cst.Comparison):
        return pure(test.left) and all(pure(c.comparator) for c in test.comparisons)
    return False


# Branches that do the same --------------------------------------------------------------------------------------------


def merged(before: cst.If | cst.IfExp, after: cst.If | cst.IfExp) -> cst.CSTNode | Sequence[cst.CSTNode] | None:
    """
    What takes the place of a choice whose branches do the same after the edits; None where they do not, or did so
    before, or where the condition has an effect or a comment would be lost.
    """
    first, second = _branches(after)
    if second is None or not pure(after.test) or not alike(first, second) or _same(before):
        return None
    if isinstance(after, cst.IfExp):
        return after.body.with_changes(lpar=[*after.lpar, *after.body.lpar], rpar=[*after.body.rpar, *after.rpar])
    assert isinstance(after.orelse, cst.Else)
    said = [line.partition("#")[1:] for line in cst.Module([]).code_for_node(after.orelse).splitlines() if "#" in line]
    return contents(after) if all(map(_goes_along, ("".join(comment) for comment in said))) else None


def _same(choice: cst.If | cst.IfExp) -> bool:
    first, second = _branches(choice)
    return second is not None and alike(first, second)


def _goes_along(comment: str) -> bool:
    return speaks_of_device(comment) or speaks_of_moving(comment)


def _branches(choice: cst.If | cst.IfExp) -> tuple[cst.CSTNode, cst.CSTNode | None]:
    if isinstance(choice, cst.IfExp):
        return choice.body, choice.orelse
    footed = isinstance(choice.body, cst.IndentedBlock) and any(line.comment for line in choice.body.footer)
    return choice.body, choice.orelse.body if isinstance(choice.orelse, cst.Else) and not footed else None
