"""What single expressions say: a value among several, the arguments of a call, sizes that do not depend on the rows."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..dataflow.callees import method_name
from ..syntax.nodes import FunctionNode, is_zero, parameters, positional


def value_at(value: cst.BaseExpression, place: int | None) -> cst.BaseExpression:
    """What is at one position of a function's result; the whole result if its parts are not written out."""
    if place is None or not isinstance(value, (cst.Tuple, cst.List)) or place >= len(value.elements):
        return value
    starred = any(isinstance(element, cst.StarredElement) for element in value.elements)
    return value if starred else value.elements[place].value


def arguments(call: cst.Call, function: FunctionNode, name: str) -> Iterator[cst.BaseExpression]:
    """What a call hands to a parameter; all that has no other parameter's name where a star hides it."""
    if any(arg.star for arg in call.args):
        others = {param.name.value for param in parameters(function)} - {name}
        yield from (arg.value for arg in call.args if arg.keyword is None or arg.keyword.value not in others)
        return
    places = [param.name.value for param in positional(function)]
    if places[:1] in (["self"], ["cls"]):
        places = places[1:]
    for index, arg in enumerate(call.args):
        if arg.keyword is not None:
            if arg.keyword.value == name:
                yield arg.value
        elif index >= len(places) or places[index] == name:
            yield arg.value


def is_width(node: cst.CSTNode) -> bool:
    """``x.shape[1]``: a shard has its own number of rows, but its other sizes are equal everywhere."""
    base = node.value if type(node) is cst.Subscript else None
    if (
        type(node) is not cst.Subscript
        or not isinstance(base, cst.Attribute)
        or base.attr.value != "shape"
        or len(node.slice) != 1
    ):
        return False
    first = node.slice[0].slice
    if isinstance(first, cst.Index):
        return not is_zero(first.value)
    return isinstance(first, cst.Slice) and isinstance(first.lower, cst.Integer) and not is_zero(first.lower)


def counts_dimensions(call: cst.Call) -> bool:
    """``len(x.shape)``, ``len(x.size())``: however many rows there are, the number of dimensions is the same."""
    of = call.args[0].value if len(call.args) == 1 and method_name(call) == "len" else None
    if isinstance(of, cst.Call) and not of.args:
        return method_name(of) == "size"
    return isinstance(of, cst.Attribute) and of.attr.value == "shape"
