"""Training that nothing is seen to start: a library, a test, a module that is imported by a computed name."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.roles import Role
from ...findings import Finding, Severity
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins


def without_entry(state: State, reach: Reach) -> Iterator[tuple[Unit, Finding]]:
    """The first file whose training is not seen to be started."""
    for unit in reach.units:
        for call in unit.names.calls:
            record = state.calls.get(call)
            if method_name(call) == "backward" and record is not None and record.receiver is not None:
                if origins(record.receiver, Role.ACCELERATOR) or _keeps_accelerator(state, unit, call):
                    continue
                if (pattern := _computed_name(state, reach, unit)) is not None:
                    yield (
                        unit,
                        Finding(
                            "computed-import",
                            call,
                            f"this file trains, and is imported by a name that the script computes (`{pattern}`): it "
                            "is not known which of its functions the script calls, so nothing was changed",
                            f"import `{unit.name}` and what you call of it by their names there, then migrate",
                            case="not-called",
                        ),
                    )
                    return
                yield unit, _unstarted(unit, call)
                return


def _unstarted(unit: Unit, call: cst.Call) -> Finding:
    around = unit.names.ancestors(call)
    if any(isinstance(one, cst.FunctionDef) and one.name.value.startswith("test_") for one in around):
        return Finding(
            "no-entry-point",
            call,
            "this file is a test: a test runner starts its training, in one process",
            "leave it as it is, and migrate the script whose code it tests",
            Severity.BLOCKED,
            case="test",
        )
    return Finding(
        "no-entry-point",
        call,
        "this file trains, but nothing in it starts the training",
        "migrate the script that calls it: both files are then edited together. If an installed command calls it, let "
        "this file start it too: if __name__ == '__main__': ...",
        Severity.BLOCKED,
        case="library",
    )


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
