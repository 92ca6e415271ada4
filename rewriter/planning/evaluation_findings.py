"""What is said of evaluations that are not understood: each process reads the whole set, or its shard."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis.dataflow.values import Unit
from ..analysis.layouts.metrics import Evaluation
from ..facts.accelerator import LoaderCopy
from ..findings import Cause, Finding, Severity


def unprepared(evaluation: Evaluation, stays: bool) -> Finding:
    """``stays``: its batches are moved to the device, by the script or as they come."""
    share = (
        'prepare the loader, average the figures of its batches with accelerator.reduce(..., reduction="mean"), and '
        "gather what it collects row by row with accelerator.gather_for_metrics(...)"
        if evaluation.groups
        else "prepare the loader, and gather the inputs of the metric with accelerator.gather_for_metrics(...)"
    )
    return Finding(
        "prepare",
        evaluation.loop,
        f"this evaluation loop was not understood: {evaluation.because}. Its loader is not prepared, so every process "
        f"evaluates the whole set{'' if stays else ', and nothing moves its batches to a GPU'}",
        f"{'no action needed' if stays else 'to run on GPUs, move its batches to accelerator.device'}: its figures are "
        f"those of the original, and take as long. Only to share the work, where its rows add up: {share}",
        Severity.NOTE if stays else Severity.REVIEW,
        cause=_seen(evaluation),
        case="whole-evaluation",
    )


def copied(evaluation: Evaluation, copies: Sequence[tuple[Unit, LoaderCopy]]) -> Finding:
    names = " and ".join(f"`{copy.name}`" for _, copy in copies)
    return Finding(
        "prepare",
        evaluation.loop,
        f"this evaluation loop was not understood: {evaluation.because}. It read a loader that the training reads, and "
        f"now reads {names}, which is not prepared, so every process evaluates the whole set",
        "no action needed: its figures are those of the original, and take as long",
        Severity.NOTE,
        cause=_seen(evaluation),
        case="own-copy",
    )


def of_one_share(evaluation: Evaluation) -> Finding:
    effect = "each process would evaluate only its own shard, and go on with figures of its own"
    if not evaluation.keeps:
        effect = "each process goes through its own shard alone, and what the main process shows or saves is of that"
    several = len(evaluation.loaders) > 1  # which of them a call gives it is not known
    return Finding(
        "prepare",
        evaluation.loop,
        f"this evaluation loop was not understood: {evaluation.because}. "
        + (
            "Several loaders come to it, and it may read the one that the training reads"
            if several
            else "It reads the loader that the training reads"
        )
        + f", which is prepared: {effect}",
        (
            "go through the evaluation's loader in a plain for loop"
            if several
            else "give the evaluation a loader of its own, which no training reads"
        )
        + ": every process then goes through all rows; or gather what it reads with "
        "accelerator.gather_for_metrics(...)",
        Severity.BLOCKED if evaluation.keeps else Severity.REVIEW,
        cause=_seen(evaluation),
        case="shared-loader",
    )


def _seen(evaluation: Evaluation) -> Cause | None:
    """Where it is seen why an evaluation was not understood."""
    return Cause(evaluation.at, evaluation.because) if evaluation.at is not None else None
