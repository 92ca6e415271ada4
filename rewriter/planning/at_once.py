"""Downloads that all processes of a distributed script do at the same time, because nothing keeps them from it."""

from __future__ import annotations

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import Unit
from ..analysis.syntax.nodes import keyword
from ..analysis.syntax.walk import nodes_in
from ..facts.effects import Effect, EffectKind
from .program import ProgramFacts

_WAITS = frozenset({"barrier", "monitored_barrier", "wait_for_everyone"})


def at_once(program: ProgramFacts, unit: Unit, effect: Effect) -> bool:
    """Whether an effect is a download that no condition on the rank keeps from some processes, nor a barrier under
    one: ``if rank != 0: dist.barrier()`` before it lets one process go ahead."""
    if effect.kind is not EffectKind.DOWNLOAD or effect.optional:
        return False
    guards, reach = program.guards, program.reach
    asked = (keyword(call, "download") for call in nodes_in(effect.node, cst.Call))
    if any(guards.ranks.mentions(unit, value) for value in asked if value is not None):
        return False
    places, seen = [(unit, effect.node)], set[Code]()
    while places:
        where, node = places.pop()
        code = where.names.function(node)
        waits = (c for c in where.names.calls if where.names.function(c) is code and method_name(c) in _WAITS)
        if any(any(guards.around(where, one)) for one in (node, *waits)):
            return False
        if code not in seen:
            seen.add(code)
            places += [(reach.unit_of(site, where), site) for site in reach.sites(code)]
    return True
