"""
Tell the sampler which epoch it is.

A `DistributedSampler` shuffles by its seed and its epoch. Without `set_epoch` each epoch has the order of the first
one, so the batches are the same in every epoch.

     for epoch in range(epochs):
    +    sampler.set_epoch(epoch)
         for batch in loader:

Accelerate, Fabric and torchlift do it for the loaders that they prepare.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.values import CallRecord, Unit
from ..analysis.syntax.nodes import keyword
from ..analysis.syntax.walk import descendants
from ..facts.roles import Origin
from ..facts.torch_api import process_calls
from ..findings import Finding, Severity
from .program import AuditedProgram
from .rule import AuditRule, Found


def without_epoch(program: AuditedProgram) -> Found:
    """The shuffling samplers of training loops for which ``set_epoch`` is never called, or always with the same
    epoch."""
    if not program.by_hand:
        return
    told = list(program.reached_calls("set_epoch"))
    constant = [r for r in told if r.node.args and isinstance(r.node.args[0].value, cst.Integer)]
    for loader, loops in program.iterated.items():
        call, unit = loader.node, program.unit_of(loader.node)
        if unit is None or not isinstance(call, cst.Call):
            continue
        if not any(_repeated(program, loop) for loop in (*loops, *_in_generators(program, loader))):
            continue
        for record in _samplers(program, unit, call):
            shuffle = keyword(record.node, "shuffle", 3)
            if isinstance(shuffle, cst.Name) and shuffle.value == "False":
                continue
            mine = [r for r in told if _may_be(program, r, record, call)]
            if not mine or all(r in constant for r in mine):
                words = "`set_epoch` is always given the same number" if mine else "nothing calls its `set_epoch`"
                yield (
                    record.unit,
                    Finding(
                        "missing-set-epoch",
                        record.node,
                        f"{words}: every epoch has the order of the first one",
                        "call sampler.set_epoch(epoch) at the start of each epoch",
                        Severity.ERROR,
                    ),
                )


def _samplers(program: AuditedProgram, unit: Unit, call: cst.Call) -> list[CallRecord]:
    """The distributed samplers that a loader is given."""
    found = []
    for value in program.sampling(call):
        for source in program.tracer.sources(unit, value):
            record = program.state.calls.get(source.node) if isinstance(source.node, cst.Call) else None
            if record is not None and process_calls.is_distributed_sampler(outside_name(record)):
                found.append(record)
    return found


def _may_be(program: AuditedProgram, told: CallRecord, sampler: CallRecord, loader: cst.Call) -> bool:
    """Whether a ``set_epoch`` may be of a sampler: it is unless it is certainly of another one."""
    receiver = told.node.func.value if isinstance(told.node.func, cst.Attribute) else None
    if receiver is None:
        return True
    if isinstance(receiver, cst.Attribute) and receiver.attr.value in ("sampler", "batch_sampler"):
        sources = program.tracer.sources(told.unit, receiver.value)
        return any(s.node is loader or not isinstance(s.node, cst.Call) for s in sources)
    sources = program.tracer.sources(told.unit, receiver)
    return any(s.node is sampler.node or not isinstance(s.node, cst.Call) for s in sources)


def _in_generators(program: AuditedProgram, loader: Origin) -> Iterator[cst.CSTNode]:
    """The loops of generators that hand out the batches of a loader: what draws from them is another loop."""
    for loop, loaders in program.state.loaders.items():
        if loader in loaders and isinstance(loop, cst.For):
            if any(isinstance(node, cst.Yield) for node in descendants(loop.body)):
                yield loop


def _repeated(program: AuditedProgram, loop: cst.CSTNode) -> bool:
    """Whether a loop over a loader runs again and again: in another loop, or in a function that one calls."""
    unit = program.unit_of(loop)
    if unit is None:
        return False
    if any(around is not loop for around in program.reach.loops(loop, unit)):
        return True
    seen, pending = set(), [unit.names.function(loop)]
    while pending:
        code = pending.pop()
        if code in seen:
            continue
        seen.add(code)
        for site in program.sites(code):
            if program.reach.loops(site.node, site.unit):
                return True
            pending.append(site.unit.names.function(site.node))
    return False


RULE = AuditRule("missing-set-epoch", __doc__, without_epoch)
