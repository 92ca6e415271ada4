"""Under which conditions something was set: a flag, a count of bad steps, what a function returns early."""

from __future__ import annotations

import libcst as cst

from ..dataflow.values import Unit
from ..syntax.walk import nodes_in
from .divergence import Equality

Tested = cst.If | cst.While
TESTED = (cst.If, cst.While)


def own_conditions(equality: Equality, unit: Unit, node: cst.CSTNode) -> list[tuple[Unit, Tested]]:
    """The statements whose conditions, each process's own, decide what the parts of an expression are given."""
    found: dict[Tested, Unit] = {}
    seen: set[cst.CSTNode] = set()
    pending: list[tuple[Unit, cst.CSTNode, cst.CSTNode]] = [(unit, node, node)]
    while pending:
        home, place, value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if value is not node:
            tests = (a for a in home.names.enclosing(place, *TESTED) if isinstance(a, TESTED))
            found.update({a: home for a in tests if equality.is_local(home, a.test)})
        for call in nodes_in(value, cst.Call):
            for function in equality.reach.called(call):
                own = equality.reach.unit(function)
                pending += ((own, r, r.value or r) for r in own.names.returns.get(function, ()))
        pending += ((w.unit, w.node, w.node) for w in equality.given(home, value))
    return [(home, each) for each, home in found.items()]
