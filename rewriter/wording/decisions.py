"""The words for decisions that processes would make differently."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from ..facts.reasons.decisions import (
    Agreeing,
    Agreement,
    Decided,
    Differs,
    Doubt,
    LeftOut,
    LocalDecision,
    ShortBatch,
    SwallowedError,
)
from ..findings import CODE, Cause, Finding, Severity
from .registry import worded


@worded.register(SwallowedError)
def _swallowed_error(found: SwallowedError) -> Finding:
    return Finding(
        "local-decision",
        found.node,
        f"`{found.handler}` goes on after an error, which one process may meet alone: from there on it is not at the "
        "step of the others, and the processes would hang",
        "catch only the end of the data, to which all processes come together: except StopIteration"
        if found.at_end
        else "raise the error again, so that the launcher ends all processes; or catch it before the backward pass, "
        "and let all processes leave out the step if one of them has an error: accelerator.reduce(...)",
        Severity.REVIEW,
        case="error",
    )


@worded.register(LeftOut)
def _left_out(found: LeftOut) -> Finding:
    return Finding(
        "local-decision",
        found.node,
        f"{found.test} is about the batch of one process: where it is true on one of them, all leave this step out, "
        "and with it the batches of the others",
        "no action needed if such batches are rare; otherwise leave them out in the data set, or give their loss the "
        "weight 0 and take the step",
        Severity.REVIEW,
        case="left-out",
    )


@worded.register(ShortBatch)
def _short_batch(found: ShortBatch) -> Finding:
    return Finding(
        "local-decision",
        found.node,
        f"whether this step continues depends on {found.test}: a short last batch is filled up on N processes, so "
        "that all of them train on it; with split batches each process has its shard of the rows, and never as many "
        "as the script's batch",
        "for the same steps use drop_last=True; with split batches leave out this condition",
        Severity.REVIEW,
        case="short-batch",
    )


@worded.register(LocalDecision)
def _local_decision(found: LocalDecision) -> Finding:
    words = _DECIDED[found.what]
    why = _DIFFERS[found.why].format(draw=found.draw)
    return Finding(
        "local-decision",
        found.node,
        f"{words.what} {found.text}, {why}{words.then}{_DOUBTS[found.doubt]}",
        _agreed(found.remedy),
        Severity.BLOCKED if found.hangs else Severity.REVIEW,
        found.value,
        Cause(found.source, _there(found.source, found.why)) if found.source is not None else None,
        case=words.case,
    )


class _DecidedWords(NamedTuple):
    what: str
    """What depends on a value, in words that go on with the value."""
    then: str
    """What happens where processes decide differently."""
    case: str


_HANG = ": the processes would hang"
_DECIDED = {
    Decided.STEP: _DecidedWords("whether this step continues depends on", _HANG, case="step"),
    Decided.CHECKPOINT: _DecidedWords(
        "whether a checkpoint is saved depends on", ": the main process decides", case="checkpoint"
    ),
    Decided.LOSS: _DecidedWords("the choice of the loss depends on", ": their losses may differ", case="choice"),
    Decided.LOOP: _DecidedWords("how many steps this loop takes depends on", _HANG, case="loop"),
    Decided.RATE: _DecidedWords("the learning rate depends on", "", case="learning-rate"),
    Decided.CHANGED_RATE: _DecidedWords(
        "whether the learning rate changes here depends on",
        ": they would train at different rates",
        case="learning-rate",
    ),
    Decided.COMPUTED_RATE: _DecidedWords("the learning rate is computed from", "", case="learning-rate"),
}
_DOUBTS = {Doubt.NONE: "", Doubt.NUMBERS: ", if the numbers differ", Doubt.FIGURE: ", if it is a figure of this shard"}
_DIFFERS = {
    Differs.BY_SHARD: "which each process computes from its own shard of the data",
    Differs.BY_ITSELF: "which each process reads by itself (the clock, a file, its device)",
    Differs.BY_DRAWS: "and each process evaluates the whole set with random numbers of its own ({draw})",
    Differs.BY_NOISE: "and each process computes it with random numbers of its own ({draw})",
}


def _there(source: cst.CSTNode, why: Differs) -> str:
    """What happens where a value that differs comes from."""
    if why is Differs.BY_DRAWS:
        return "each process evaluates the whole set here, with random numbers of its own"
    if why is Differs.BY_NOISE:
        return "each process draws random numbers of its own here"
    turns = isinstance(source, (cst.For, cst.CompFor))
    return "each process goes through its own shard of the data here" if turns else "each process has its own here"


def _agreed(agreement: Agreement) -> str:
    """How the processes decide alike; for a condition the line that does it."""
    text = agreement.text
    if agreement.how is Agreeing.BY_MAIN:
        return f"decide on the figure of the main process: {text} = broadcast_object_list([{text}])[0]"
    if agreement.how is Agreeing.EQUAL:
        return "decide on a value that is equal on all processes: accelerator.reduce(...)"
    if agreement.how is Agreeing.VALUE_OF_MAIN:
        return "let the main process decide: broadcast_object_list([value])[0]"
    if agreement.how is Agreeing.TOLD_BY_MAIN:
        return f"let the main process decide for all:\n{CODE}{agreement.word} broadcast_object_list([{text}])[0]:"
    answer = f'accelerator.reduce(torch.tensor(float(bool({text})), device=accelerator.device), reduction="sum")'
    return f"let all processes decide as one, by what is true on any of them:\n{CODE}{agreement.word} {answer} > 0:"
