"""The words for batches: their sizes, places and numbers, and what is shown or left out of them."""

from __future__ import annotations

from ..facts.reasons.batches import (
    DroppedBatches,
    EarlyHorizon,
    EarlyLength,
    HandedLoader,
    ListedBatches,
    NumberedBatch,
    NumberedRows,
    PhasesInOneLoop,
    PlacedRows,
    ShardedBatch,
    ShownRows,
    ShownShard,
    TiedShape,
)
from ..findings import Cause, Finding, Severity
from .registry import worded


@worded.register(TiedShape)
def _tied_shape(found: TiedShape) -> Finding:
    return Finding(
        "batch-size-shape",
        found.node,
        "this shape uses the script's batch size, but with the global batch kept each process has only its shard of "
        "the rows",
        "take the number of rows from the batch (x.size(0)), or do not use --keep-global-batch",
        Severity.BLOCKED,
    )


@worded.register(NumberedBatch)
def _numbered_batch(found: NumberedBatch) -> Finding:
    return Finding(
        "batch-number",
        found.node,
        f"`{found.table}` is read at `{found.place}`, the number of the batch, which each process counts for itself: "
        f"the same number is another batch of the data on each of them. An entry of `{found.table}` that belongs to "
        "one batch of the data would meet other rows",
        f"where `{found.table}` has an entry for each batch, let the data set give each row its own part of it",
        case="entry",
    )


@worded.register(NumberedRows)
def _numbered_rows(found: NumberedRows) -> Finding:
    return Finding(
        "batch-number",
        found.node,
        f"`{found.place}` counts the batches of one process, which are not the first ones of the data: "
        + (f"`{found.table}` would keep these rows" if found.kept else f"the rows of `{found.table}`")
        + (" at the places of others" if found.kept else " that are read here belong to other samples than the batch"),
        f"let the data set return the number of each row with it, and use that as the index of `{found.table}`",
        Severity.BLOCKED,
        case="rows",
    )


@worded.register(PlacedRows)
def _placed_rows(found: PlacedRows) -> Finding:
    return Finding(
        "row-place",
        found.node,
        f"`{found.text}` goes by the places of rows in their batch, and a loss is computed from it: with the global "
        "batch kept these are places in the shard of each process, so the result differs from the original's",
        "no action needed if it does not matter which rows these are; otherwise leave out --keep-global-batch: each "
        "process then takes whole batches of the script's size",
    )


@worded.register(ShownRows)
def _shown_rows(found: ShownRows) -> Finding:
    whole = f"it on all processes before this line: {found.name} = accelerator.gather({found.name})"
    if found.filled:
        whole = "what it is filled with, on all processes: accelerator.gather(...)"
    return Finding(
        "one-share",
        found.node,
        f"each process has only its own rows of `{found.name}`: the file shows those of the main process",
        f"no action needed if a sample is enough; otherwise gather {whole}",
        Severity.NOTE if found.sample else Severity.REVIEW,
        case="shown",
    )


@worded.register(HandedLoader)
def _handed_loader(found: HandedLoader) -> Finding:
    return Finding(
        "one-share",
        found.node,
        f"`{found.caller}` is given `{found.loader}`, of which each process has its own rows: code that cannot be "
        "seen here makes its result of the rows of one process, and not of all",
        f"no action needed if that is enough; otherwise keep the loader as it is, every_row = {found.loader} before "
        "prepare(...), and give it every_row",
        case="loader",
    )


@worded.register(ShownShard)
def _shown_shard(found: ShownShard) -> Finding:
    return Finding(
        "one-share",
        found.node,
        "each process has only its own rows of this batch: what is shown here are those of one process",
        "no action needed if a sample is enough; otherwise gather it on all processes before this line: "
        "accelerator.gather(...)",
        case="shown",
    )


@worded.register(ShardedBatch)
def _sharded_batch(found: ShardedBatch) -> Finding:
    part = ": of a loss that is a sum over the rows, 1/N" if found.sums else ""
    but = ", but for the loss that another finding names" if found.bent else ""
    what = f"`{'`, `'.join(found.names)}`" if found.names else "this batch"
    its = "its" if found.beside else "the"
    return Finding(
        "sharded-batch",
        found.node,
        f"no prepared loader feeds this training: each process trains on its own rows of {what}. Together they "
        f"compute what one process computes{but}; {its} learning rate stays as it is. A figure of a step that is "
        f"printed without a reduction is that of the main process's rows{part}",
        'no action needed; for the figure of all rows print accelerator.reduce(value.detach(), reduction="mean")'
        + (
            f". If `{found.source}` is a torch.utils.data.DataLoader, pass --assume loader={found.source}: then each "
            "process loads its own rows alone"
            if found.source
            else ""
        ),
        Severity.NOTE,
        case="beside-loaders" if found.beside else "by-hand",
    )


@worded.register(ListedBatches)
def _listed_batches(found: ListedBatches) -> Finding:
    return Finding(
        "kept-batches",
        found.node,
        "all batches are read into a list before the first one is used: the accelerator can only split batches that "
        "it yields itself",
        "iterate over the loader in every epoch (a TensorDataset also keeps its data in memory)",
        Severity.BLOCKED,
    )


@worded.register(EarlyHorizon)
def _early_horizon(found: EarlyHorizon) -> Finding:
    return Finding(
        "early-length",
        found.node,
        f"the learning rate is computed from `{found.steps}`, the steps of one process, divided by a total made of "
        f"`{found.asked}` from before the loader is prepared: on N processes an epoch has N times fewer steps, so the "
        "rate changes N times too slowly",
        f"ask for {found.asked} after the loader is prepared",
    )


@worded.register(EarlyLength)
def _early_length(found: EarlyLength) -> Finding:
    return Finding(
        "mean-of-batches",
        found.node,
        f"`{found.name}` is {found.length} from before the loader is prepared: on N processes a loop over it has N "
        "times fewer batches, so what is divided by it is N times smaller",
        f"ask for {found.length} where it is divided by, after the loader is prepared",
        cause=Cause(found.asked, "it is asked for here"),
        case="early-length",
    )


@worded.register(DroppedBatches)
def _dropped_batches(found: DroppedBatches) -> Finding:
    told = "this loader has drop_last=True and an evaluation reads it:"
    if not found.certain:
        named = f" (`drop_last={found.option}`)" if found.option else ""
        told = f"this loader may have drop_last=True{named}, and an evaluation reads it: if it has,"
    apart = " in this one alone, and not in what the training reads" if found.apart else ""
    return Finding(
        "dropped-batches",
        found.node,
        f"{told} N processes take batches in turns of N, and leave out the last turn where it is not full. "
        "So up to N batches are not evaluated, where one process leaves out only a part of one",
        f"evaluate every row: drop_last=False{apart}; the processes' shards are filled up, and "
        "gather_for_metrics takes out what was filled in",
    )


@worded.register(PhasesInOneLoop)
def _phases_in_one_loop(found: PhasesInOneLoop) -> Finding:
    what = "adds up the loss of" if found.adds_up else "averages the loss over"
    return Finding(
        "filled-batch",
        found.node,
        f"this loop both trains and evaluates, and each process {what} its own rows: at the end of the data "
        "a shard is padded with repeated rows, so the evaluation loss is close to that of the whole set but not equal "
        "to it",
        "no action needed if close is good enough; for the exact figure, use --keep-global-batch",
        Severity.NOTE,
        case="one-loop",
    )
