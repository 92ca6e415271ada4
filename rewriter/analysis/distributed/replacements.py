"""Distribution by hand, in full: each place of it, and what the accelerator offers there instead."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.roles import Role
from ...facts.torch_api import process_calls
from ...findings import Finding, Severity
from ..dataflow.call_graph import Reach
from ..dataflow.values import External, State, Unit, origins
from ..effects.unused_code import is_named

_DIST = ("torch.distributed.", "torch.distributed.distributed_c10d.")
INSTEAD = {
    "init_process_group": "remove it: Accelerator() opens the group, under torchrun as well",
    "destroy_process_group": "remove it: the accelerator closes what it opened",
    "DistributedDataParallel": "remove the wrapper and its .module: prepare(model) replaces it",
    "DistributedSampler": "remove the sampler and its set_epoch(): pass shuffle=True to the loader, and prepare it",
    "spawn": "call the worker directly: `torchlift launch --num-processes N` (or torchrun) starts the processes",
    "get_rank": "accelerator.process_index; if rank == 0 becomes if accelerator.is_main_process",
    "get_world_size": "accelerator.num_processes",
    "barrier": "accelerator.wait_for_everyone()",
    "all_reduce": 'accelerator.reduce(x, reduction="sum"); for a metric gather_for_metrics before it is counted',
    "reduce": 'accelerator.reduce(x, reduction="sum")',
    "all_gather": "accelerator.gather(x)",
    "all_gather_object": "accelerator.gather_for_metrics(x, use_gather_object=True)",
    "broadcast": "broadcast(x) of torchlift.runtime.utils",
    "broadcast_object_list": "broadcast_object_list(x) of torchlift.runtime.utils",
    "is_initialized": "accelerator.use_distributed",
    "init_device_mesh": "a mesh of several dimensions is not supported yet: leave this script as it is",
    "parallelize_module": "the runtime distributes data, not the layers of a model: leave this script as it is",
    "FullyShardedDataParallel": "the runtime keeps the whole model on each device: leave this script as it is if the "
    "model needs sharding",
    "fully_shard": "the runtime keeps the whole model on each device: leave this script as it is if the model needs "
    "sharding",
    "convert_sync_batchnorm": "keep it before prepare(model): it only matters on GPUs",
}
_VARIABLES = {
    "RANK": "accelerator.process_index",
    "LOCAL_RANK": "accelerator.local_process_index",
    "WORLD_SIZE": "accelerator.num_processes",
    "MASTER_ADDR": "remove it: the launcher sets it",
    "MASTER_PORT": "remove it: the launcher sets it",
}


def distributed(state: State, reach: Reach) -> Iterator[tuple[Unit, Finding]]:
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
            remedy = INSTEAD.get(last, "use the accelerator's method, or leave it out")
            yield unit, _blocked(call, f"distributed by hand: {last}", remedy)
    for unit in reach.units:
        for node, variable in _environment(unit):
            yield unit, _blocked(node, f'distributed by hand: os.environ["{variable}"]', _VARIABLES[variable])


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


def _blocked(node: cst.CSTNode, message: str, remedy: str) -> Finding:
    return Finding("already-distributed", node, message, remedy, Severity.BLOCKED, case="listed")
