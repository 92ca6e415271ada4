"""
Whether a loader leaves out a last batch that is not full: its `drop_last`, asked for every value that it may have.

A variable that is set in several branches, and a parameter that calls give different values, may be each of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ...facts.roles import Origin
from ..dataflow.call_graph import reach_of
from ..dataflow.constant_values import Given, constants_of
from ..dataflow.values import CallRecord, State
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
    """
    What the `drop_last` of a loader is, in whatever run; both where that is not known.

    A function that makes several loaders is asked for what the call that gives this one hands to it.
    """
    record = state.calls.get(loader.node) if isinstance(loader.node, cst.Call) else None
    if record is None:
        return frozenset({False})
    constants, given = constants_of(state), _handed(state, record, loader)
    values = constants.argument(record.unit, record.node, "drop_last", _POSITION, given)
    return _OPEN if values is None else frozenset(map(bool, values)) or frozenset({False})


def _handed(state: State, made: CallRecord, loader: Origin) -> Given:
    """What the call that gives this loader hands to the function that makes it."""
    function = made.unit.names.function(made.node)
    site = state.calls.get(loader.site) if isinstance(loader.site, cst.Call) else None
    if site is None or not isinstance(function, cst.FunctionDef) or function not in reach_of(state).called(site.node):
        return {}
    return constants_of(state).handed(function, site)


def option(made: cst.CSTNode) -> cst.BaseExpression | None:
    """What the call that makes a loader gives as its `drop_last`."""
    return keyword(made, "drop_last", _POSITION) if isinstance(made, cst.Call) else None
