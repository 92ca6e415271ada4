"""
What a call comes to, with the constants that it gives: ``train("valid")`` never runs what is under
``if phase == "train":``.
"""

from __future__ import annotations

import libcst as cst

from .call_graph import Code, Reach
from .constant_values import ConstantValues
from .constants import Values

Constants = frozenset[tuple[cst.Param, Values]]
"""What a call gives to parameters of a function, as far as it is known."""
NOTHING: Constants = frozenset()
_MOST = 8
"""With more different constants than this, a function counts as called with any."""


def below(constants: ConstantValues, reach: Reach, call: cst.Call) -> dict[Code, set[Constants]]:
    """The functions that a call comes to, each with the constants that it is called with."""
    found: dict[Code, set[Constants]] = {}
    pending = _called(constants, reach, call, NOTHING)
    while pending:
        function, given = pending.pop()
        seen = found.setdefault(function, set())
        if len(seen) >= _MOST:
            given = NOTHING
        if given in seen or NOTHING in seen:
            continue
        seen.add(given)
        unit, values = reach.unit(function), dict(given)
        for node in reach.own(function):
            if isinstance(node, cst.Call) and reach.called(node):
                if not constants.excluded_by(unit, node, values):
                    pending += _called(constants, reach, node, given)
    return found


def _called(constants: ConstantValues, reach: Reach, call: cst.Call, given: Constants) -> list[tuple[Code, Constants]]:
    """The functions that a call calls, with what it gives to each, in a call of the function around it."""
    site = reach.state.calls[call]
    handed = ((code, constants.known(code, site, dict(given))) for code in reach.called(call))
    return [(code, frozenset(known.items())) for code, known in handed]
