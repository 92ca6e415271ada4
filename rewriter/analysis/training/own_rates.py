"""Where a script sets the learning rate of an optimizer by itself, without a scheduler."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import libcst as cst

from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import Unit
from ..syntax.definitions import bindings_value
from ..syntax.nodes import dotted
from ..syntax.walk import nodes_in

Setting = cst.Assign | cst.AugAssign | cst.Call


class OwnRate(NamedTuple):
    """A setting of an optimizer that gets a value."""

    node: Setting
    value: cst.BaseExpression
    of_group: bool
    """It is known to be in the ``param_groups`` of an optimizer, not only called like one of its settings."""


def own_rates(
    reach: Reach, unit: Unit, nodes: Collection[cst.CSTNode], names: Collection[str] = ("lr",)
) -> Iterator[OwnRate]:
    """What some nodes set: ``group["lr"] = rate``, ``group.update(lr=rate)``, ``group |= {"lr": rate}``."""
    for node in nodes:
        if isinstance(node, cst.Assign | cst.AugAssign):
            targets = [node.target] if isinstance(node, cst.AugAssign) else [t.target for t in node.targets]
            named = [t for t in targets if isinstance(t, cst.Subscript) and _key(t) in names]
            if named:
                yield OwnRate(node, node.value, any(_is_group(reach, unit, target.value) for target in named))
            elif isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.BitOrAssign):
                if _is_group(reach, unit, node.target):
                    yield from (OwnRate(node, value, True) for value in _entries(node.value, names))
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            name = method_name(node)
            if name not in ("update", "__setitem__") or not _is_group(reach, unit, node.func.value):
                continue
            if name == "update":
                yield from (OwnRate(node, value, True) for value in _updates(node, names))
            elif len(node.args) == 2 and _text(node.args[0].value) in (*names, ""):
                yield OwnRate(node, node.args[1].value, True)


def _key(target: cst.Subscript) -> str:
    index = target.slice[0].slice if len(target.slice) == 1 else None
    return _text(index.value) if isinstance(index, cst.Index) else ""


def _text(node: cst.BaseExpression | None) -> str:
    return str(node.evaluated_value) if isinstance(node, cst.SimpleString) else ""


def _updates(call: cst.Call, names: Collection[str]) -> Iterator[cst.BaseExpression]:
    """What a call of ``update`` gives to some keys; all that it is given, where the keys are not seen."""
    for arg in call.args:
        if arg.keyword is not None:
            if arg.keyword.value in names:
                yield arg.value
        else:
            yield from _entries(arg.value, names)


def _entries(table: cst.BaseExpression, names: Collection[str]) -> Iterator[cst.BaseExpression]:
    """The entries of a table with some keys; all of it, where the keys are not seen."""
    if isinstance(table, cst.Dict):
        known = [e for e in table.elements if isinstance(e, cst.DictElement) and _text(e.key)]
        others = (e.value for e in table.elements if e not in known)
        yield from (*(e.value for e in known if _text(e.key) in names), *others)
    elif isinstance(table, cst.Call) and dotted(table.func) == "dict":
        yield from _updates(table, names)
    else:
        yield table


def _is_group(reach: Reach, unit: Unit, node: cst.BaseExpression, depth: int = 4) -> bool:
    """Whether an expression is made from ``optimizer.param_groups``: a part of it, a turn of a loop over it, an
    argument."""
    if any(n.attr.value == "param_groups" for n in nodes_in(node, cst.Attribute)):
        return True
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    if binding is None or not depth:
        return False
    turns = (next(unit.names.enclosing(each, cst.For), None) for each in binding.definitions)
    made = [(unit, lp.iter) for lp in turns if isinstance(lp, cst.For)]
    made += [(unit, value) for value in bindings_value(unit.names, binding)]
    return any(_is_group(reach, home, value, depth - 1) for home, value in (*made, *reach.given(binding)))
