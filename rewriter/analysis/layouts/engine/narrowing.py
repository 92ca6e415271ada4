"""What a value can be in a branch that asks for its type: ``if isinstance(state, torch.Tensor): ... else: ...``."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from ....facts.torch_api import questions
from ...dataflow.callees import outside_name
from ...dataflow.values import External, State
from .layout import Each, Layout, Made, Mixed, Partial, Several, Shard, Whole, join

_TENSOR = "tensor"
_ROWS_OF_VALUES = frozenset({"list", "tuple"})
_CONTAINERS = _ROWS_OF_VALUES | {"dict"}


class AskedType(NamedTuple):
    """A condition on the type of a variable."""

    name: cst.Name
    kinds: frozenset[str]
    """Where it is met the value is one of these, and none of them otherwise: a tensor, a list, a tuple, a dict."""
    negated: bool = False

    def left(self, layout: Layout, *, met: bool) -> Layout | None:
        """What is left of a layout where the condition is met, or where it is not; None where that cannot be."""
        return _left(layout, self.kinds, met is not self.negated)


def asked_type(state: State, test: cst.BaseExpression) -> AskedType | None:
    """Whether a condition asks if a variable is a tensor or a container; None where it asks something else."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        found = asked_type(state, test.expression)
        return found._replace(negated=not found.negated) if found is not None else None
    record = state.calls.get(test) if isinstance(test, cst.Call) else None
    if not isinstance(test, cst.Call) or record is None or not test.args:
        return None
    name = test.args[0].value
    if not isinstance(name, cst.Name) or not questions.asks_type(outside_name(record)):
        return None
    kinds = _kinds(state, test.args[1].value) if len(test.args) > 1 else {_TENSOR}
    return AskedType(name, frozenset(kinds)) if "" not in kinds else None


def only_tensor(layout: Layout) -> Layout:
    """What a value is of which a method is called that only tensors have."""
    return _left(layout, frozenset({_TENSOR}), True) or layout


def unpacked(layout: Layout, count: int) -> Layout:
    """What a value is that is unpacked into so many names: where it is a tuple of as many on some path, that."""
    if not isinstance(layout, Mixed):
        return layout
    one, other = unpacked(layout.one, count), unpacked(layout.other, count)
    fits = [each for each in (one, other) if isinstance(each, Several) and len(each.items) == count]
    return join(*fits) if len(fits) == 2 else fits[0] if fits else layout


def _left(layout: Layout, kinds: frozenset[str], met: bool) -> Layout | None:
    if isinstance(layout, Mixed):
        one, other = _left(layout.one, kinds, met), _left(layout.other, kinds, met)
        return join(one, other) if one is not None and other is not None else one or other
    if isinstance(layout, (Several, Each)):
        maybe = _ROWS_OF_VALUES if isinstance(layout, Several) and not layout.names else _CONTAINERS
    elif isinstance(layout, (Made, Whole)) or (isinstance(layout, (Shard, Partial)) and layout.host is False):
        if isinstance(layout, Shard) and layout.assumed is not None:
            return layout  # what a model gives: one tensor or several
        maybe = frozenset({_TENSOR})
    else:
        return layout
    possible = maybe & kinds if met else maybe - kinds
    return layout if possible else None


def _kinds(state: State, asked: cst.BaseExpression) -> set[str]:
    """Which of tensors and containers some types are; an empty text for what is neither."""
    if isinstance(asked, cst.Tuple):
        return {kind for entry in asked.elements for kind in _kinds(state, entry.value)}
    if isinstance(asked, cst.Name) and asked.value in _CONTAINERS:
        return {asked.value}
    slot = state.values.get(asked)
    names = [thing.qualified for thing in slot.things if isinstance(thing, External)] if slot is not None else []
    return {_TENSOR if questions.is_tensor_type(name) else "" for name in names} or {""}
