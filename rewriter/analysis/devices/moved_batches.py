"""Which loaders give batches that the script moves to a device: what is prepared moves its own."""

from __future__ import annotations

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import process_calls
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.containers import members
from ..dataflow.values import State, Wrapped, origins
from ..training.row_code import run_for_rows
from .legacy import casts_to_gpu

_MOVES = frozenset({"to", "cuda", "send_to_device", "to_device", "copy_"})


def moves_tensors(state: State, reach: Reach) -> bool:
    """Whether the script moves anything but models to a device, in code that it reaches: its batches perhaps, by way of
    functions in which they are no batches any more."""
    for call, record in state.calls.items():
        name = method_name(call)
        if name == "cuda" or (name == "to" and any(origins(state.values.get(a.value), Role.DEVICE) for a in call.args)):
            if reach.function_of(call) in reach.reachable and not origins(record.receiver, Role.MODEL):
                return True
    return False


def moved_batches(state: State, reach: Reach) -> frozenset[Origin]:
    """The loaders of which some batch is moved, in code that the script reaches: found once for a solved program."""
    return state.once(moved_batches, lambda: frozenset(_found(state, reach)))


def _found(state: State, reach: Reach) -> set[Origin]:
    moved = [
        slot
        for call, record in state.calls.items()
        if (method_name(call) in _MOVES or casts_to_gpu(state, record)) and reach.function_of(call) in reach.reachable
        for slot in (record.receiver, members(state, record.first) if record.first is not None else None)
    ]
    wrapped = (record for call, record in state.calls.items() if record.first is not None and _is_spread(state, call))
    moved += [record.first for record in wrapped if reach.function_of(record.node) in reach.reachable]
    state.solver.run()
    found = {o.source for slot in moved for o in origins(slot, Role.BATCH) if o.source is not None}
    made = {o for record in state.calls.values() for o in origins(record.result, Role.LOADER) if o.node is record.node}
    return found | {loader for loader in made - found if _comes_moved(state, reach, loader)}


def _is_spread(state: State, call: cst.Call) -> bool:
    """Whether a call runs a model in ``nn.DataParallel``, which moves what it is given: where that is removed, what it
    has moved is answered for where it is handed over."""
    slot = state.values.get(call.func)
    made = (thing.node for thing in (slot.things if slot is not None else ()) if isinstance(thing, Wrapped))
    return any(outside_name(state.calls[one]) in process_calls.wrappers("threads") for one in made)


def _comes_moved(state: State, reach: Reach, loader: Origin) -> bool:
    """Whether the data set of a loader makes its rows on a device: ``torch.tensor(row, device=self.device)``."""
    for _, nodes in run_for_rows(state, reach, lambda record: record.node is loader.node):
        for call in (node for node in nodes if isinstance(node, cst.Call)):
            given = [arg.value for arg in call.args if arg.keyword is not None and arg.keyword.value == "device"]
            if any(not isinstance(one, cst.SimpleString) or one.evaluated_value != "cpu" for one in given):
                return True
            if method_name(call) == "cuda" or (method_name(call) == "to" and any(map(_is_device, call.args))):
                return True
    return False


def _is_device(arg: cst.Arg) -> bool:
    """``accelerator.device``, ``self.device``."""
    return isinstance(arg.value, cst.Attribute) and arg.value.attr.value == "device"
