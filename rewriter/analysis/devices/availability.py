"""What a condition asks of the script, with the availability of a device taken as given."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from ...facts.torch_api import process_calls
from ..dataflow.callees import outside_name
from ..dataflow.values import State, Unit
from ..syntax.definitions import attribute_assignments, deletions
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in

_ValueOf = Callable[[Unit, "cst.Name | cst.Attribute"], "cst.BaseExpression | None"]
"""What gives the value of a flag."""


def refused(state: State, unit: Unit, test: cst.BaseExpression) -> str | None:
    """The text of ``not test`` with the availability of a device taken as given; None where nothing is left."""
    parts = _wanted(state, unit, test, 0)
    if not parts:
        return None
    return " or ".join(negated(unit, part) for part in parts)


def said_before(state: State, unit: Unit, text: str) -> str:
    """A condition such as ``not args.cuda`` as what keeps it was made: ``args.no_cuda``, which is known before."""
    node = cst.parse_expression(text)
    if not (isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not)):
        return text
    parts = _wanted(state, unit, node.expression, 0, value_of=_given_once)
    return " or ".join(negated(unit, part) for part in parts) or text


def asked_of(state: State, unit: Unit, test: cst.BaseExpression) -> str:
    """What a condition asks of the script in the end, also where that can be read there no more."""
    return " ".join(text_of(unit, part) for part in _wanted(state, unit, test, 0, value_of=_given_once))


def gives_way(state: State, unit: Unit, test: cst.BaseExpression) -> bool:
    """Whether ``refused`` leaves out a part of a condition, which asks torch whether a device is there."""
    return any(_is_availability(state, part) for part in _joined(state, unit, test, 0, _set_once))


def _wanted(
    state: State, unit: Unit, test: cst.BaseExpression, depth: int, value_of: _ValueOf | None = None
) -> list[cst.BaseExpression]:
    """The conditions joined by ``and``, without those that ask whether a device is there."""
    joined = _joined(state, unit, test, depth, value_of or _set_once)
    return [part for part in joined if not _is_availability(state, part)]


def _joined(
    state: State, unit: Unit, test: cst.BaseExpression, depth: int, value_of: _ValueOf
) -> list[cst.BaseExpression]:
    """The conditions joined by ``and``, with flags as what they are made of."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return [p for side in (test.left, test.right) for p in _joined(state, unit, side, depth, value_of)]
    if isinstance(test, cst.IfExp) and _is_word(test.body, "True") and _is_word(test.orelse, "False"):
        return _joined(state, unit, test.test, depth, value_of)
    if isinstance(test, (cst.Name, cst.Attribute)) and depth < 3:
        value = value_of(unit, test)
        constant = isinstance(value, cst.Name) and value.value in ("True", "False", "None")
        renamed = isinstance(value, (cst.Name, cst.Attribute)) and not constant  # ``cuda = args.cuda``
        if value is not None and (renamed or asks_availability(state, value)):
            return _joined(state, unit, value, depth + 1, value_of)
    return [test]


def _is_availability(state: State, part: cst.BaseExpression) -> bool:
    """``torch.cuda.is_available()``, ``torch.cuda.device_count() > 0``."""
    asked = part.left if isinstance(part, cst.Comparison) else part
    return (
        isinstance(asked, cst.Call)
        and asked in state.calls
        and process_calls.asks_availability(outside_name(state.calls[asked]))
    )


def _is_word(node: cst.BaseExpression, word: str) -> bool:
    return isinstance(node, cst.Name) and node.value == word


def _set_once(unit: Unit, flag: cst.Name | cst.Attribute) -> cst.BaseExpression | None:
    """The only value that a flag is given, ``args.cuda = not args.no_cuda``; None where it is made of itself, or of
    what may be gone or changed when the flag is read."""
    value = _given_once(unit, flag)
    return value if value is not None and not _goes(unit, value) else None


def _goes(unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether something that a value reads is deleted, or set again after it."""
    names, here = unit.names, unit.names.order(value)
    scope = names.scopes[names.function(value)]
    if deletions(names, value, scope):
        return True
    read = list(nodes_in(value, cst.Attribute))
    return any(names.order(again) > here for node in read for again in attribute_assignments(names, node))


def _given_once(unit: Unit, flag: cst.Name | cst.Attribute) -> cst.BaseExpression | None:
    if isinstance(flag, cst.Name):
        binding = unit.names.binding(flag)
        return only_value(unit, binding) if binding is not None else None
    assigns = attribute_assignments(unit.names, flag)
    if len(assigns) != 1 or any(unit.names.enclosing(assigns[0], cst.If, cst.For, cst.While, cst.Try)):
        return None
    value = assigns[0].value
    return None if any(part.deep_equals(flag) for part in descendants(value)) else value


def asks_availability(state: State, value: cst.BaseExpression) -> bool:
    calls = (node for node in nodes_in(value, cst.Call) if node in state.calls)
    return any(process_calls.asks_availability(outside_name(state.calls[call])) for call in calls)


def only_value(unit: Unit, binding: Binding) -> cst.BaseExpression | None:
    if len(binding.definitions) != 1:
        return None
    parent = unit.names.parents.get(unit.names.parents.get(binding.definitions[0]))  # type: ignore[arg-type]
    return parent.value if isinstance(parent, cst.Assign) and len(parent.targets) == 1 else None


def negated(unit: Unit, node: cst.BaseExpression) -> str:
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        return text_of(unit, node.expression)
    text = text_of(unit, node)
    simple = isinstance(node, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)) or text.startswith("(")
    return f"not {text}" if simple else f"not ({text})"


def text_of(unit: Unit, node: cst.CSTNode) -> str:
    return unit.names.module.code_for_node(node)
