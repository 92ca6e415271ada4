"""
Check by hand what the audit could not follow: it neither reports nor approves that code.

A model that is sharded (FSDP, tensor parallel, pipelines), DeepSpeed, Horovod and apex, a framework that runs the
loop, a training loop without a visible loader, a backward pass without a known step: each of these is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.syntax.nodes import import_source
from ..facts.torch_api import questions
from ..findings import Finding, Severity
from ..validation import coverage
from .program import AuditedProgram
from .rule import AuditRule, Found

_ID = "not-followed"


def gaps(program: AuditedProgram) -> Found:
    """The parts of a program that were not understood."""
    if program.unfollowed is not None:
        record, name = program.unfollowed
        words = f"the audit does not follow how `{name}` distributes the model: only writes and collectives are checked"
        yield record.unit, Finding(_ID, record.node, words, "", Severity.NOTE)
    if program.groups is not None:
        words = "the script makes process groups of its own: which processes must call a collective was not checked"
        yield program.groups.unit, Finding(_ID, program.groups.node, words, "", Severity.NOTE)
    for violation in coverage.unseen(program):
        yield violation.place.unit, Finding(_ID, violation.place.node, violation.words, "", Severity.NOTE)
    training = program.training
    if training.backwards and not training.train_loops:
        record = training.backwards[0]
        words = "no known loader feeds this training: whether each process reads rows of its own was not checked"
        yield record.unit, Finding(_ID, record.node, words, "", Severity.NOTE)
    for loader in program.iterated:
        unit = program.unit_of(loader.node)
        if unit is not None and program.is_sharded(loader) is None:
            words = "whether each process reads rows of its own from this loader was not understood"
            yield unit, Finding(_ID, loader.node, words, "", Severity.NOTE)
    if training.backwards and not training.models:
        words = "the model that this trains was not found: whether it is wrapped was not checked"
        record = training.backwards[0]
        yield record.unit, Finding(_ID, record.node, words, "", Severity.NOTE)
    if not training.backwards:
        yield from _idle(program)


def _idle(program: AuditedProgram) -> Found:
    """A program without visible training: it uses a framework, or it is a library."""
    unit = program.reach.units[0]
    title = next(_frameworks(program), "")
    words = f"{title} runs the training loop" if title else "no training was found in this program"
    yield unit, Finding(_ID, None, f"{words}: only its collectives are checked", "", Severity.NOTE)


def _frameworks(program: AuditedProgram) -> Iterator[str]:
    for unit in program.reach.units:
        for node in unit.names.every(cst.ImportFrom):
            assert isinstance(node, cst.ImportFrom)
            if title := questions.framework(import_source(node)):
                yield title


RULE = AuditRule(_ID, __doc__, gaps)
