"""The words for losses: how they are reduced, weighed and divided."""

from __future__ import annotations

from ..facts.reasons import about, called
from ..facts.reasons.losses import (
    NoMean,
    OpenReduction,
    OwnClosure,
    OwnLossWeight,
    OwnWeights,
    UnclearLoss,
    WeightedFigure,
    WeightedMean,
)
from ..findings import Cause, Finding, Severity
from .registry import worded


@worded.register(OpenReduction)
def _open_reduction(found: OpenReduction) -> Finding:
    return Finding(
        "loss-reduction",
        found.node,
        f"it is not known whether `{found.loss}` is a mean or a sum over the rows of a batch ({found.reason}): it is "
        "taken for a mean, and the gradients of the processes are averaged",
        f'no action needed if it is a mean; if it is a sum, write accelerator.backward({found.loss}, reduction="sum")',
        part=found.part,
        cause=Cause(found.source, found.reason) if found.source is not None else None,
        case="option",
    )


@worded.register(NoMean)
def _no_mean(found: NoMean) -> Finding:
    return Finding(
        "weighted-mean",
        found.node,
        f"`{found.text}` is no mean and no sum over the rows of a batch ({found.reason}): with the global batch kept "
        "each process computes it of its own shard, so the gradient is another one than the original's",
        "no action needed if this term may be that of a smaller batch; otherwise leave out --keep-global-batch: each "
        "process then takes whole batches of the script's size",
        cause=Cause(found.source, found.reason),
        case="no-mean",
    )


@worded.register(UnclearLoss)
def _unclear_loss(found: UnclearLoss) -> Finding:
    taken = "sum" if found.sums else "mean"
    otherwise = "" if found.sums else f'if it is a sum, write accelerator.backward({found.text}, reduction="sum"); '
    return Finding(
        "loss-reduction",
        found.node,
        f"it is not known whether `{found.text}` is a mean or a sum over the rows of a batch ({found.reason}): with "
        "the global batch kept each process computes it of its own shard, and anything else gives another gradient",
        f"no action needed if it is a {taken} over the rows; --verify shows it; {otherwise}otherwise leave out "
        "--keep-global-batch: each process then takes whole batches of the script's size",
        cause=Cause(found.source, found.reason),
        case="global-batch",
    )


@worded.register(OwnWeights)
def _own_weights(found: OwnWeights) -> Finding:
    what = "gradients" if found.gradients else "weights"
    return Finding(
        "one-share",
        found.node,
        f"{what} are changed here by `{found.text}`, which each process computes from its own shard: ranks "
        "would train different weights",
        'make it equal on all processes before: accelerator.reduce(value, reduction="mean") of a mean over the rows, '
        'reduction="sum" of a sum or a count',
        Severity.BLOCKED,
        case="weights",
    )


@worded.register(OwnLossWeight)
def _own_loss_weight(found: OwnLossWeight) -> Finding:
    return Finding(
        "one-share",
        found.node,
        f"the loss is weighted with `{found.name}`, which each process computes here from its own shard",
        "make it equal on all processes: accelerator.reduce(...) of the tensor that the number is read off",
        case="loss-weight",
    )


@worded.register(OwnClosure)
def _own_closure(found: OwnClosure) -> Finding:
    return Finding(
        "local-decision",
        found.node,
        "LBFGS chooses its step from the loss that the closure returns, and each process would return the loss of its "
        "own shard",
        'return accelerator.reduce(loss.detach(), reduction="mean") from the closure',
        Severity.BLOCKED,
        case="closure",
    )


@worded.register(WeightedFigure)
def _weighted_figure(found: WeightedFigure) -> Finding:
    divisor = "weights of its rows" if found.divisor == "weight" else "number of rows that are not left out"
    return Finding(
        "weighted-mean",
        found.node,
        about(
            f"in each batch {{}} is divided by the {divisor}, and on N processes other rows are in a "
            "batch together: the average over the batches is close to the original's figure but not equal to it",
            called(found.node),
        ),
        "no action needed if close is good enough; for the exact figure, sum the losses of all rows, and divide by the "
        f"{divisor.replace('its', 'all')}",
        Severity.NOTE,
        case="figure",
    )


@worded.register(WeightedMean)
def _weighted_mean(found: WeightedMean) -> Finding:
    return Finding(
        "weighted-mean",
        found.node,
        f"each process {found.how}: the gradient is close to the original's but not equal to it",
        "no action needed if close is good enough; for the exact gradient, sum the losses and divide by a reduced "
        "count",
        part=found.part,
        case="own-divisor",
    )
