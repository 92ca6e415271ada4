"""Distribution by hand, in full: each place of it, and what the accelerator offers there instead."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.distributed import ListedCall, ListedVariable
from ...facts.roles import Role
from ...facts.torch_api import process_calls
from ..dataflow.call_graph import Reach
from ..dataflow.values import External, State, Unit, origins
from ..effects.unused_code import is_named

_DIST = ("torch.distributed.", "torch.distributed.distributed_c10d.")
_VARIABLES = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})


def distributed(state: State, reach: Reach) -> Iterator[tuple[Unit, Reason]]:
    """All places of a program that distribute it by hand, where there is one that says so; else none."""
    found = [(unit, call, name) for unit in reach.units for call, name in running(reach, unit)]
    accelerated = any(origins(record.result, Role.ACCELERATOR) for record in state.calls.values())
    by_hand = (name for _, _, name in found if process_calls.distributes(name))
    if all(
        accelerated and process_calls.is_distributed_sampler(name) for name in by_hand
    ):  # a prepared loader keeps it
        return
    seen: set[cst.CSTNode] = set()
    for unit, call, name in found:
        last = name.rpartition(".")[2]
        if call not in seen:
            seen.add(call)
            yield unit, ListedCall(call, last)
    for unit in reach.units:
        for node, variable in _environment(unit):
            yield unit, ListedVariable(node, variable)


def of_torch(qualified: str) -> bool:
    """Whether a name is one of torch's own for distribution."""
    return qualified.startswith(_DIST)


def calls(state: State, unit: Unit) -> Iterator[tuple[cst.Call, str]]:
    """The calls of a module with the full names of what they call outside the program."""
    for call in unit.names.calls:
        record = state.calls.get(call)
        for thing in record.callees if record is not None else ():
            if isinstance(thing, External):
                yield call, thing.qualified


def running(reach: Reach, unit: Unit) -> Iterator[tuple[cst.Call, str]]:
    """The calls of a module that distribute a program, and may run: a helper that nothing names says nothing of it."""
    for call, name in calls(reach.state, unit):
        distributes = process_calls.distributes(name) or of_torch(name) or name.endswith(".convert_sync_batchnorm")
        if distributes and is_named(unit, reach, call):
            yield call, name


def _environment(unit: Unit) -> Iterator[tuple[cst.CSTNode, str]]:
    """Reads and writes of the variables that launchers set."""
    for node in unit.names.every(cst.SimpleString):
        if node.evaluated_value in _VARIABLES:
            for around in list(unit.names.ancestors(node))[:4]:
                text = unit.names.module.code_for_node(around) if isinstance(around, (cst.Subscript, cst.Call)) else ""
                if text.startswith(("os.environ", "environ", "os.getenv", "getenv")):
                    yield node, str(node.evaluated_value)
                    break
