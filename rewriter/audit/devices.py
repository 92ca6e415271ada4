"""
Let each process use its own device.

`"cuda"` is the first GPU until `torch.cuda.set_device` says otherwise, and `"cuda:0"` always is: N processes would
share one GPU, or have weights and batches on two different GPUs.

     local_rank = int(os.environ["LOCAL_RANK"])
    +torch.cuda.set_device(local_rank)
     model = DDP(Net().cuda(), device_ids=[local_rank])

With Accelerate, Fabric or torchlift: `accelerator.device`, `fabric.device`, and batches of a prepared loader, which are
already on the device.
"""

from __future__ import annotations

import libcst as cst

from ..analysis.dataflow.callees import method_name, outside_name, outside_names
from ..analysis.dataflow.values import CallRecord, Unit, origins
from ..analysis.syntax.nodes import keyword
from ..facts.roles import TENSORS, Origin, Role
from ..facts.torch_api import process_calls
from ..findings import Finding, Severity
from ..validation.loaders import iterated, unprepared
from .program import AuditedProgram
from .rule import AuditRule, Found, line_of

_MOVES = frozenset({"to", "cuda"})


def wrong_devices(program: AuditedProgram) -> Found:
    """The moves to a device that is not the process's own, and batches that are not moved at all."""
    told: set[cst.CSTNode] = set()
    pinned = _pinned(program)
    for record in program.records if not _hides_others(program) else ():
        words = _moved(program, record, pinned) or _wrapped(program, record)
        if words and program.guards.always(record.unit, record.node):
            continue  # code of only one process may choose any device
        if words and record.unit.names.statement(record.node) not in told:
            told.add(record.unit.names.statement(record.node))
            text = line_of(record.unit.names.module.code_for_node(record.node))
            remedy = 'use the device of this process: f"cuda:{local_rank}", after torch.cuda.set_device(local_rank)'
            yield record.unit, Finding("wrong-device", record.node, f"`{text}`: {words}", remedy, Severity.ERROR)
    for found in unprepared(program) if program.accelerated and not program.by_hand else ():
        if not found.is_moved and _is_moved_by_prepare(program, found.loader):
            words = "the batches of this loader are not moved to the device of the process: it is not prepared"
            remedy = "hand it to `prepare`, or move each batch: batch.to(accelerator.device)"
            yield found.unit, Finding("wrong-device", iterated(found.loop), words, remedy, Severity.ERROR)


def _is_moved_by_prepare(program: AuditedProgram, loader: Origin) -> bool:
    """Whether only the preparation of a loader is missing; a training loader that is not sharded has its own rule."""
    record = program.state.calls.get(loader.node) if isinstance(loader.node, cst.Call) else None
    if record is None or not outside_name(record).startswith("torch.utils.data"):
        return False
    return all(other.node is not loader.node for other in program.iterated)


def _moved(program: AuditedProgram, record: CallRecord, pinned: bool) -> str:
    """What is wrong with the device that a batch or a model is moved to; empty if nothing is."""
    if method_name(record.node) not in _MOVES or not origins(record.receiver, Role.MODEL, *TENSORS):
        return ""
    given = keyword(record.node, "device", 0)
    if given is None:
        return "" if pinned or method_name(record.node) == "to" else _FIRST
    words = [
        _device(program, source.unit, source.node, pinned) for source in program.tracer.sources(record.unit, given)
    ]
    return next(iter(words), "") if words and all(words) else ""


_FIRST = "without torch.cuda.set_device this is the first GPU, on every process"


def _device(program: AuditedProgram, unit: Unit, node: cst.CSTNode, pinned: bool) -> str:
    """What is wrong with one device; empty if it may be the process's own."""
    if isinstance(node, cst.Call) and node.args:
        record = program.state.calls.get(node)
        if record is None or outside_name(record) != "torch.device":
            return ""
        if len(node.args) > 1:
            return ""
        inner = [_device(program, s.unit, s.node, pinned) for s in program.tracer.sources(unit, node.args[0].value)]
        bad = [words for words in inner if words]
        return bad[0] if bad and len(bad) == len([s for s in inner if s is not None]) else ""
    if isinstance(node, cst.Integer):
        return "this is one GPU for all processes"
    text = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    if text == "cuda" and not pinned:
        return _FIRST
    return "this is one GPU for all processes" if isinstance(text, str) and text.startswith("cuda:") else ""


def _wrapped(program: AuditedProgram, record: CallRecord) -> str:
    """``DDP(model, device_ids=[0])``."""
    if record not in program.wraps:
        return ""
    given = keyword(record.node, "device_ids", 1)
    if isinstance(given, cst.List) and len(given.elements) == 1 and isinstance(given.elements[0].value, cst.Integer):
        return "every process puts its model on the same GPU"
    return ""


def _pinned(program: AuditedProgram) -> bool:
    """Whether something sets the device of each process, or a launcher outside the program may do so."""
    opened = any(outside_name(record) == "torch.distributed.init_process_group" for record in program.records)
    if not program.by_hand or program.unfollowed is not None or not program.wraps or not opened:
        return True
    for unit in program.reach.units:
        if "CUDA_VISIBLE_DEVICES" in unit.names.module.code:
            return True
    return any(_pins(record) for record in program.records)


def _hides_others(program: AuditedProgram) -> bool:
    """Whether each process sees only its own GPU, whose number is 0: ``os.environ["CUDA_VISIBLE_DEVICES"] = rank``."""
    for unit in program.reach.units:
        for target in unit.names.every(cst.AssignTarget):
            assign = unit.names.parents.get(target)
            if isinstance(target, cst.AssignTarget) and isinstance(assign, cst.Assign):
                literal = isinstance(assign.value, cst.SimpleString)
                if "CUDA_VISIBLE_DEVICES" in unit.names.module.code_for_node(target.target) and not literal:
                    return True
    return False


def _pins(record: CallRecord) -> bool:
    return any(process_calls.pins(name) for name in outside_names(record)) or method_name(record.node) == "set_device"


RULE = AuditRule("wrong-device", __doc__, wrong_devices)
