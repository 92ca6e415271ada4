"""Training that nothing is seen to start: a library, a test, a module that is imported by a computed name."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.refusals import ComputedImport, NothingStarts, TrainsInTest
from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins


def without_entry(state: State, reach: Reach) -> Iterator[tuple[Unit, Reason]]:
    """The first file whose training is not seen to be started."""
    for unit in reach.units:
        for call in unit.names.calls:
            record = state.calls.get(call)
            if method_name(call) == "backward" and record is not None and record.receiver is not None:
                if origins(record.receiver, Role.ACCELERATOR) or _keeps_accelerator(state, unit, call):
                    continue
                if (pattern := _computed_name(state, reach, unit)) is not None:
                    yield unit, ComputedImport(call, pattern, unit.name)
                    return
                yield unit, _unstarted(unit, call)
                return


def _unstarted(unit: Unit, call: cst.Call) -> Reason:
    around = unit.names.ancestors(call)
    if any(isinstance(one, cst.FunctionDef) and one.name.value.startswith("test_") for one in around):
        return TrainsInTest(call)
    return NothingStarts(call)


def _computed_name(state: State, reach: Reach, unit: Unit) -> str | None:
    """What is written out of the name by which a file is imported, if nothing is seen to be called of the file."""
    if any(function in reach.reachable for function in unit.names.functions):
        return None
    return next((start for start, found in state.layout.families.items() if unit.name in found), None)


def _keeps_accelerator(state: State, unit: Unit, call: cst.Call) -> bool:
    """Whether the file gives an attribute an accelerator, in a class of which it makes no object: ``self.fabric``."""
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    if not isinstance(owner, cst.Attribute):
        return False
    named = (n for n in state.values if isinstance(n, cst.Attribute) and n.attr.value == owner.attr.value)
    kept = (n for n in named if isinstance(unit.names.parents.get(n), cst.AssignTarget))
    return any(origins(state.values.get(node), Role.ACCELERATOR) for node in kept)
