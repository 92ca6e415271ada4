"""
Prepare all models, optimizers and loaders in order before the training, and use the accelerator for the backward pass.

The results of `prepare` have the order of its arguments. An optimizer that is not prepared with its model ignores
scaling and accumulation. A model that is prepared after its training was trained on each process separately. A backward
pass without the accelerator is neither scaled nor divided. A loss that is gathered before its backward pass has the
gradient of one process only.

    -model, optimizer = accelerator.prepare(optimizer, model)
    +model, optimizer = accelerator.prepare(model, optimizer)

    -loss.backward()
    +accelerator.backward(loss)
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import origins
from ..facts.roles import Role
from ..findings import Finding, Severity
from ..validation import gradients, preparation, prepare_order
from ..validation.violation import Violation
from .program import AuditedProgram
from .rule import AuditRule, Found


def misprepared(program: AuditedProgram) -> Found:
    """What is prepared in the wrong order, too late, or without its model or optimizer."""
    if program.by_hand or not program.prepares:
        return
    plain = any(model not in program.wrapped for model in program.training.models)
    for violation in _preparation(program):
        if violation.invariant == "model-prepared" or (violation.invariant == "optimizer-prepared" and plain):
            continue  # a model that is not wrapped has its own rule
        yield (
            violation.place.unit,
            Finding(
                "misprepared", violation.place.node, violation.words, "prepare all of it together, before the training",
                Severity.ERROR,
            ),
        )  # fmt: skip


def _preparation(program: AuditedProgram) -> Iterator[Violation]:
    for invariant in (preparation.together, prepare_order.ordered, prepare_order.early):
        yield from invariant(program)


def outside_backwards(program: AuditedProgram) -> Found:
    """The backward passes that do not use the accelerator."""
    if program.by_hand or not program.prepares:
        return
    for record in program.training.backwards:
        if not origins(record.receiver, Role.ACCELERATOR) and not _optimizer_does(record.node):
            words = "this backward pass does not go through the accelerator: nothing scales or divides its loss"
            remedy = "write accelerator.backward(loss), or fabric.backward(loss)"
            yield record.unit, Finding("outside-backward", record.node, words, remedy, Severity.ERROR)


def gathered_losses(program: AuditedProgram) -> Found:
    """The collectives on the path of a backward pass."""
    for violation in gradients.joined(program) if not program.by_hand else ():
        words = f"{violation.words}: its gradient is that of one process"
        remedy = "call backward on the loss of this process, and gather a detached copy for the log"
        yield violation.place.unit, Finding("gathered-loss", violation.place.node, words, remedy, Severity.ERROR)


def _optimizer_does(call: cst.Call) -> bool:
    return method_name(call) != "backward"


RULE = AuditRule("misprepared", __doc__, misprepared)
BACKWARD = AuditRule("outside-backward", __doc__, outside_backwards)
GATHERED = AuditRule("gathered-loss", __doc__, gathered_losses)
