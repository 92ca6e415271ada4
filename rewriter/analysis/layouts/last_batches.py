"""
Whether a loader leaves out a last batch that is not full: its `drop_last`, asked for every value that it may have.

A variable that is set in several branches, and a parameter that calls give different values, may be each of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ...facts.roles import Origin
from ..dataflow.constant_values import constants_of
from ..dataflow.values import State
from ..syntax.nodes import keyword

_POSITION = 8
"""Of `drop_last` among the arguments of torch's `DataLoader`."""
_OPEN = frozenset({True, False})
"""What is not known."""


def always_drops_last(state: State, loaders: Iterable[Origin]) -> bool:
    """Whether all of some loaders certainly leave out what does not fill a batch."""
    found = [drops_last(state, loader) for loader in loaders]
    return bool(found) and all(answers == {True} for answers in found)


def drops_last(state: State, loader: Origin) -> frozenset[bool]:
    """What the `drop_last` of a loader is, in whatever run; both where that is not known."""
    record = state.calls.get(loader.node) if isinstance(loader.node, cst.Call) else None
    if record is None:
        return frozenset({False})
    values = constants_of(state).argument(record.unit, record.node, "drop_last", _POSITION)
    return _OPEN if values is None else frozenset(map(bool, values)) or frozenset({False})


def option(made: cst.CSTNode) -> cst.BaseExpression | None:
    """What the call that makes a loader gives as its `drop_last`."""
    return keyword(made, "drop_last", _POSITION) if isinstance(made, cst.Call) else None
