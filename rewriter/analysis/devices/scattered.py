"""
What a script hands to a model in ``nn.DataParallel``, or in DDP with ``device_ids``, from the CPU.

The wrapper moved it to its GPUs. It is removed, so that the script has to move it: what is known to be a tensor of the
CPU is moved where it is handed over, and what may be one is reported.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...facts.placement import Move, Placement
from ...facts.reasons import Reason
from ...facts.reasons.devices import UnmovedInput
from ...facts.roles import SHARES, Role
from ...facts.torch_api import process_calls
from ..dataflow.callees import outside_name
from ..dataflow.values import Unit, Wrapped, origins
from ..syntax.nodes import is_constant, keyword
from .host_tensors import PLAIN
from .moves import Mover

_THREADS = "nn.DataParallel"


def scattered(
    mover: Mover, unit: Unit, wrappers: frozenset[str], cut: Container[cst.CSTNode]
) -> Iterator[Placement | Reason]:
    """What goes into the models of a module that are wrapped no more; ``cut``: batches that are edited themselves."""
    for call in unit.names.calls if wrappers and not mover.existing else ():
        if call not in mover.state.calls or unit.names.function(call) not in mover.reach.reachable:
            continue
        wrapper = _mover(mover, call.func, wrappers) if isinstance(call.func, (cst.Name, cst.Attribute)) else ""
        if not wrapper:
            continue
        for index, arg in enumerate(call.args):
            value = arg.value
            if is_constant(value):
                continue
            if mover.made_on_host.new_tensor(unit, value):
                if isinstance(value, PLAIN) and not arg.star and value not in cut:
                    yield Placement(value, Move.PLACE, f"{wrapper} moved it, and is removed")
                else:
                    yield unmoved_input(unit, value, wrapper)
            elif index == 0 and not _is_there(mover, unit, value):
                if isinstance(value, cst.Name) and value not in cut and _is_batch_tensor(mover, unit, value):
                    yield Placement(value, Move.PLACE, f"{wrapper} moved it, and is removed")
                else:
                    yield unmoved_input(unit, value, wrapper)


def _mover(mover: Mover, model: cst.BaseExpression, wrappers: frozenset[str]) -> str:
    """What wraps a model and moves to its devices what that is given; empty where nothing does."""
    slot = mover.state.values.get(model)
    for thing in slot.things if slot is not None else ():
        made = thing.node if isinstance(thing, Wrapped) else None
        if not isinstance(made, cst.Call) or (name := outside_name(mover.state.calls[made])) not in wrappers:
            continue
        if name in process_calls.wrappers("threads"):
            return _THREADS
        devices = keyword(made, "device_ids", 1)
        if devices is not None and not (isinstance(devices, cst.Name) and devices.value == "None"):
            return "DistributedDataParallel"
    return ""


def applied(mover: Mover, unit: Unit) -> Iterator[Placement]:
    """The calls of a function that calls a model on several devices: ``data_parallel(net, x, range(n))``."""
    for call in unit.names.calls:
        record = mover.state.calls.get(call)
        if record is None or unit.names.function(call) not in mover.reach.reachable:
            continue
        if process_calls.applies(outside_name(record)) and keyword(call, "inputs", 1) is not None:
            if keyword(call, "module", 0) is not None and not any(arg.star for arg in call.args):
                yield Placement(call, Move.CALL, "each process calls the model for its own rows")


def unmoved_input(unit: Unit, value: cst.CSTNode, wrapper: str = _THREADS) -> Reason:
    """What is said of something that the removed wrapper may have moved."""
    text = unit.names.one_line(value)
    model = next((a.func for a in unit.names.ancestors(value) if isinstance(a, cst.Call)), None)
    code = unit.names.module.code_for_node(model) if model is not None else "model"
    return UnmovedInput(value, wrapper, text, code)


_OF_TENSORS = frozenset("shape size dim ndim dtype device float half view reshape".split())


def _is_batch_tensor(mover: Mover, unit: Unit, value: cst.Name) -> bool:
    """Whether a variable is a tensor of the batches of a loader, as it came: the script asks for its shape."""
    held, binding = origins(mover.state.values.get(value)), unit.names.binding(value)
    above = (unit.names.parents.get(read) for read in (binding.reads if binding is not None else ()))
    asked = any(isinstance(node, cst.Attribute) and node.attr.value in _OF_TENSORS for node in above)
    return asked and bool(held) and all(one.role is Role.BATCH for one in held)


def _is_there(mover: Mover, unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether a value is on the device as far as is known: moved, computed there, or yielded by a prepared loader."""
    held = origins(mover.state.values.get(value))
    batches = [o for o in held if o.role is Role.BATCH]
    if batches:
        return all(o.source in mover.placed for o in batches) or mover.made_on_host.moved(unit, value)
    return any(o.role in SHARES for o in held) or mover.made_on_host.moved(unit, value)
