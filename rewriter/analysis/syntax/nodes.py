"""What single nodes say by themselves: parameters of a function, dotted names, docstrings, sources of imports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile

import libcst as cst

from .walk import children

FunctionNode = cst.FunctionDef | cst.Lambda
FUNCTIONS = frozenset({cst.FunctionDef, cst.Lambda})


def parameters(function: FunctionNode) -> list[cst.Param]:
    """All parameters of a function in order, ``*args`` and ``**kwargs`` included."""
    params = function.params
    star = [params.star_arg] if isinstance(params.star_arg, cst.Param) else []
    double = [params.star_kwarg] if params.star_kwarg is not None else []
    return [*params.posonly_params, *params.params, *star, *params.kwonly_params, *double]


def positional(function: FunctionNode) -> list[cst.Param]:
    """The parameters that positional arguments fill, in order."""
    return [*function.params.posonly_params, *function.params.params]


def is_docstring(statement: cst.CSTNode) -> bool:
    """Whether a statement is nothing but a string."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    return isinstance(small, cst.Expr) and isinstance(small.value, (cst.SimpleString, cst.ConcatenatedString))


def dotted(node: cst.CSTNode | None) -> str:
    """``a.b.c`` for names and attributes of names, else the empty string."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""


def import_source(node: cst.ImportFrom) -> str:
    """The module that ``from m import ...`` reads, with its leading dots."""
    return "." * len(node.relative) + dotted(node.module)


def is_none(node: cst.CSTNode | None) -> bool:
    """Whether an expression is ``None``, written out."""
    return isinstance(node, cst.Name) and node.value == "None"


def is_minus_one(node: cst.BaseExpression) -> bool:
    """``-1``, which stands for "not distributed" where it is compared with a rank."""
    minus = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus)
    return minus and isinstance(getattr(node, "expression", None), cst.Integer)


def asks_whether_set(node: cst.Comparison) -> bool:
    """``rank != -1``, ``rank is None``, ``rank >= 0``: whether a number is set, not which one it is."""
    sides = [node.left, *(target.comparator for target in node.comparisons)]
    target = node.comparisons[0]
    positive = is_zero(target.comparator) and isinstance(target.operator, (cst.GreaterThanEqual, cst.LessThan))
    return positive or any(is_none(side) or is_minus_one(side) for side in sides)


_CONSTANTS = (cst.BaseNumber, cst.SimpleString, cst.ConcatenatedString, cst.FormattedString)


def is_constant(node: cst.CSTNode) -> bool:
    """Whether a value is written out as a text or a number, or is ``None``, ``True`` or ``False``: no tensor."""
    return isinstance(node, _CONSTANTS) or (isinstance(node, cst.Name) and node.value in ("None", "True", "False"))


def is_zero(node: cst.CSTNode) -> bool:
    """Whether an expression is the number 0, written out."""
    return isinstance(node, cst.Integer) and node.evaluated_value == 0


def counter(loop: cst.For | cst.CompFor, *, from_zero: bool = False) -> cst.Name | None:
    """``i`` of ``for i, x in enumerate(things)``, also in a bar; with ``from_zero`` only where it begins there."""
    call, target = loop.iter, loop.target
    while isinstance(call, cst.Call) and dotted(call.func) != "enumerate":
        given = [arg.value for arg in call.args if arg.keyword is None]
        if len(given) != 1:
            return None
        call = given[0]  # tqdm(enumerate(things), total=many)
    if not isinstance(call, cst.Call) or dotted(call.func) != "enumerate" or not isinstance(target, cst.Tuple):
        return None
    first = target.elements[0].value
    start = keyword(call, "start", 1)
    zero = start is None or is_zero(start)
    return first if isinstance(first, cst.Name) and (zero or not from_zero) else None


def adds_one(node: cst.AugAssign | cst.Assign) -> str:
    """What an assignment adds one to: ``steps += 1``, ``self.steps = self.steps + 1``; empty for nothing."""
    if isinstance(node, cst.AugAssign):
        one, target = node.value, node.target
        adds = isinstance(node.operator, cst.AddAssign)
    else:
        sum_, target = node.value, node.targets[0].target
        adds = isinstance(sum_, cst.BinaryOperation) and isinstance(sum_.operator, cst.Add)
        adds = adds and isinstance(sum_, cst.BinaryOperation) and sum_.left.deep_equals(target)
        one = sum_.right if isinstance(sum_, cst.BinaryOperation) else sum_
    return dotted(target) if adds and isinstance(one, cst.Integer) and one.evaluated_value == 1 else ""


def keyword(call: cst.Call, name: str, position: int | None = None) -> cst.BaseExpression | None:
    """The value of an argument by its keyword, or by its position; None where it is not given."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return arg.value
    plain = [arg for arg in call.args if arg.keyword is None]
    if position is None or len(plain) <= position or any(arg.star for arg in plain[: position + 1]):
        return None
    return plain[position].value


def names_read(node: cst.CSTNode) -> Iterator[str]:
    """The names that an expression reads, those of attributes apart."""
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, cst.Attribute):
        yield from names_read(node.value)
    else:
        for child in children(node):
            yield from names_read(child)


def with_names(text: str, given: Mapping[str, str]) -> str:
    """An expression with other names in it, those of attributes apart."""
    return re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda found: given.get(found[0], found[0]), text)


def changed_in_place(node: cst.CSTNode) -> cst.BaseExpression | None:
    """The tensor that a method changes in place: ``p.mul_(2)``; None for anything else."""
    method = node.func if isinstance(node, cst.Call) else None
    name = method.attr.value if isinstance(method, cst.Attribute) else ""
    return method.value if isinstance(method, cst.Attribute) and name.endswith("_") and name[-2:] != "__" else None


def entry_key(node: cst.BaseExpression) -> str:
    """The key of an entry of a table that is written out, ``history["loss"]``, which no tensor has; else empty."""
    index = node.slice[0].slice if isinstance(node, cst.Subscript) and len(node.slice) == 1 else None
    value = index.value if isinstance(index, cst.Index) else None
    text = value.evaluated_value if isinstance(value, cst.SimpleString) else ""
    return text if isinstance(text, str) else ""


def text_or_value(part: cst.BaseFormattedStringContent) -> cst.CSTNode | str:
    """A part of an f-string: its text, or the expression whose value is put in."""
    if isinstance(part, cst.FormattedStringExpression):
        return part.expression
    return part.value if isinstance(part, cst.FormattedStringText) else ""


def statements_before(block: cst.IndentedBlock | cst.Module, statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The statements of a block before one of them."""
    return takewhile(lambda earlier: earlier is not statement, block.body)
