"""The words for metrics: means of batches, totals of one process, rows that are counted twice."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from ..facts.reasons.metrics import (
    NUMBER,
    AddedMeans,
    AveragesFilled,
    AveragesUneven,
    CollectedMeans,
    CountsFilled,
    JoinedMetric,
    JoinedTwice,
    JointFigure,
    JointRatio,
    MeanOfSums,
    MeansByRows,
    MeansUnderRows,
    OverAll,
    OwnFigures,
    OwnQuotient,
    OwnSingles,
    OwnTotal,
    ScaledMeans,
    SumDivisor,
    SummedMeans,
    SumsByOwnSteps,
    TotalRemedy,
    WeighedMeans,
)
from ..findings import Cause, Finding, Severity
from .registry import worded


@worded.register(SumsByOwnSteps)
def _sums_by_own_steps(found: SumsByOwnSteps) -> Finding:
    names = " and ".join(f"`{figure}`" for figure in found.figures)
    adds = "adds up" if len(found.figures) == 1 else "add up"
    return Finding(
        "mean-of-batches",
        found.node,
        f"{names} {adds} what the rows of all processes give, and `{found.divisor}` counts the steps of one process "
        "alone: on N processes the result is N times larger",
        _BY_PROCESSES,
        case="too-large",
    )


@worded.register(MeanOfSums)
def _mean_of_sums(found: MeanOfSums) -> Finding:
    return Finding(
        "mean-of-batches",
        found.node,
        f"`{found.place}` collects what the rows of all processes give in a step, and `{found.mean}` is its mean over "
        "the steps: on N processes a step has the rows of N of the script's batches, and the result is N times larger",
        _BY_PROCESSES,
        case="too-large",
    )


@worded.register(MeansByRows)
def _means_by_rows(found: MeansByRows) -> Finding:
    return Finding(
        "mean-of-batches",
        found.node,
        f"`{found.total}` adds up means over batches and is divided by `{found.divisor}`, the number of rows: "
        f"{_SMALLER}",
        _BY_BATCHES,
        cause=Cause(found.added, _ADDED_UP),
        case="too-small",
    )


@worded.register(JoinedMetric)
def _joined_metric(found: JoinedMetric) -> Finding:
    return Finding(
        "filled-batch",
        found.node,
        f"`{found.name}` combines what all processes give it: where the rows of the data do not share out evenly, the "
        "last batches are filled up with repeated rows, which it counts, so its figure is close to the original's but "
        "not equal to it",
        _EXACT,
        Severity.NOTE,
        case="joined",
    )


@worded.register(JoinedTwice)
def _joined_twice(found: JoinedTwice) -> Finding:
    return Finding(
        "filled-batch",
        found.node,
        f"`{found.name}` is given the rows of all processes, which another figure of this loop needs, and combines "
        "those of all processes once more: an average stays, and what it counts or adds up is N times too large",
        "no action needed for an average; otherwise let it take them as they are: with torchmetrics, create it with "
        "sync_on_compute=False",
        Severity.NOTE,
        case="joined-twice",
    )


@worded.register(AddedMeans)
def _added_means(found: AddedMeans) -> Finding:
    path = " on one path of the program," if found.partly else ""
    told, remedy = _DIVISORS[found.divisor], _BY_BATCHES
    if found.within:
        by = " and ".join(f"`{text}`" for text in found.within)
        told = f"{by} in each, and by nothing after that: {_FEWER}"
        if found.by_rows:  # with the global batch kept, N times fewer
            remedy = f"multiply it by the number of processes: {found.total} * accelerator.num_processes"
    return Finding(
        "mean-of-batches",
        found.node,
        f"`{found.total}` adds up means over batches{path} and is divided by {told}",
        remedy,
        cause=Cause(found.added, _ADDED_UP),
        case="too-small",
    )


_BY_BATCHES = "divide by the number of batches, len(loader), or keep the global batch: --keep-global-batch"
_BY_PROCESSES = "divide by accelerator.num_processes too, or keep the global batch: --keep-global-batch"
_ADDED_UP = "it is added up here, once a batch"
_FEWER = "on N processes there are N times fewer batches to add up"
_SMALLER = "on N processes there are N times fewer batches, so the result is N times smaller"
_DIVISORS = {
    SumDivisor.NOTHING: f"nothing: {_FEWER}",
    SumDivisor.LAST_INDEX: "the index of the last batch, one less than their number: that is more of a difference the "
    "fewer batches a process has, and a division by zero where it has one",
    SumDivisor.SAMPLES: f"the number of samples: {_SMALLER}",
    SumDivisor.OWN_BATCHES: f"the number of batches of one process alone, counted by hand: {_SMALLER}",
}


@worded.register(MeansUnderRows)
def _means_under_rows(found: MeansUnderRows) -> Finding:
    return Finding(
        "mean-of-batches",
        found.node,
        f"`{found.total}` adds up a mean that is divided by `{found.rows}`, the number of rows, and each process has "
        "only its shard of the batch: on N processes the result is N times larger",
        f"divide by the number of processes too: {found.total} / accelerator.num_processes",
        case="too-large",
    )


@worded.register(SummedMeans)
def _summed_means(found: SummedMeans) -> Finding:
    return Finding(
        "mean-of-batches",
        found.node,
        f"`{found.name}` collects a mean over the rows of each batch, and is added up and divided by nothing: {_FEWER}",
        _BY_BATCHES,
        case="too-small",
    )


@worded.register(ScaledMeans)
def _scaled_means(found: ScaledMeans) -> Finding:
    return Finding(
        "mean-of-batches",
        found.node,
        f"`{found.name}` adds up a mean over the rows of each batch, and is divided by {found.divisor}: "
        f"{_FEWER}, so the result is N times smaller",
        _BY_BATCHES,
        case="too-small",
    )


@worded.register(JointRatio)
def _joint_ratio(found: JointRatio) -> Finding:
    return Finding(
        "mean-of-batches",
        found.node,
        f"`{found.name}` collects `{found.value}` of each batch, and {_JOINED}: a mean over batches weighs the rows "
        "of a smaller batch, or those that are chosen of one, differently, and is close to the original's but not "
        "equal to it",
        "no action needed if close is good enough; for the same figure on any number of processes, add up both halves "
        "of the ratio and divide once, after the loop",
        case="no-sum",
    )


@worded.register(JointFigure)
def _joint_figure(found: JointFigure) -> Finding:
    if found.weighed:
        return Finding(
            "mean-of-batches",
            found.node,
            f"`{found.name}` weighs `{found.value}` with the number of rows of each batch, and {_JOINED}: if that is "
            f"no mean over the rows, the result is another figure then ({found.reason})",
            "no action needed if it is a mean over the rows, as an accuracy is; otherwise collect the rows, and "
            "compute the figure once, after the loop",
            Severity.NOTE,
            case="no-sum",
        )
    return Finding(
        "mean-of-batches",
        found.node,
        f"`{found.name}` collects `{found.value}` of each batch, and {_JOINED}: if that is no sum over the rows, the "
        f"total is another figure then ({found.reason})",
        "no action needed if it counts or adds up rows; otherwise collect the rows, and compute the figure once, "
        "after the loop",
        case="no-sum",
    )


@worded.register(WeighedMeans)
def _weighed_means(found: WeighedMeans) -> Finding:
    names = ", ".join(f"`{name}`" for name in found.names)
    return Finding(
        "mean-of-batches",
        found.node,
        f"{names} {'adds' if len(found.names) == 1 else 'add'} up means over the rows of each batch, times the number "
        "of these: repeated rows fill up the last shards, and the mean of the last batch counts them. The figure is "
        "close to the original's but not equal to it",
        _CLOSE + _BY_ROW,
        Severity.NOTE,
        case="average",
    )


@worded.register(CollectedMeans)
def _collected_means(found: CollectedMeans) -> Finding:
    names = ", ".join(f"`{name}`" for name in found.names)
    one = len(found.names) == 1
    effects, remedy = ["weighs the rows of a smaller last batch differently"], _BY_BATCH
    if found.filled:
        effects.append("counts the repeated rows that fill up the last one")
    if found.whole:
        effects, remedy = effects[1:], _BY_ROW
    return Finding(
        "mean-of-batches",
        found.node,
        f"{names} {'collects a mean' if one else 'collect means'} over the rows of each batch, and {_JOINED}: an "
        f"average over batches {', and '.join(effects)}. It is close to the original's but not equal to it",
        _CLOSE + remedy,
        Severity.NOTE,
        case="average",
    )


_CLOSE = "no action needed if close is good enough; for the same figure on any number of processes, "
_BY_BATCH = "collect each mean times its number of rows, and divide by the number of all rows"
_BY_ROW = 'compute a value for each row (reduction="none"), and gather those: accelerator.gather_for_metrics(...)'
_JOINED = "on N processes a batch has the rows of N of the script's"


@worded.register(OwnTotal)
def _own_total(found: OwnTotal) -> Finding:
    remedy = (
        "where it adds up rows, gather them in the training step: accelerator.gather_for_metrics(...); where it adds "
        "up "
        "figures of whole batches (a loss, a penalty), average those, in a float tensor: "
        'accelerator.reduce(..., reduction="mean")'
    )
    return Finding(
        "metrics_gather",
        found.node,
        f"{_own(found.node)}{_quotient(found.quotient)}",
        _whole(found.remedy) if found.remedy is not None else remedy,
        Severity.REVIEW,
        case="total",
    )


@worded.register(OwnFigures)
def _own_figures(found: OwnFigures) -> Finding:
    names = ", ".join(f"`{value}`" for value in found.values)
    one = len(found.values) == 1
    because = f"{names} {'is a figure' if one else 'are figures'} of one whole batch, and joined batches have others"
    return Finding(
        "metrics_gather",
        found.node,
        f"{_own(found.node)}, because {because}{_quotient(found.quotient)}",
        f"{_ENOUGH}{_whole(found.remedy)}",
        Severity.REVIEW,
        case="total",
    )


@worded.register(OwnSingles)
def _own_singles(found: OwnSingles) -> Finding:
    return Finding(
        "metrics_gather",
        found.node,
        f"{_own(found.node)}, because {found.why}{_quotient(found.quotient)}",
        f"{_ENOUGH}{_whole(found.remedy)}",
        Severity.REVIEW,
        case="total",
    )


_ENOUGH = "no action needed if the figure of one process is enough; otherwise "


def _own(node: cst.CSTNode) -> str:
    name = _collected(node)
    return f"each process totals only its own shard of the data {f'in `{name}`' if name else 'here'}"


def _collected(node: cst.CSTNode) -> str:
    """What a statement collects in; empty where that has no name."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        node = node.func.value
    elif isinstance(node, cst.AugAssign):
        node = node.target
    elif isinstance(node, cst.Assign) and len(node.targets) == 1:
        node = node.targets[0].target
    if not isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)):
        return ""
    return " ".join(cst.Module([]).code_for_node(node).split())


def _quotient(found: OwnQuotient | None) -> str:
    """What is to be said of the figure that such a total goes into."""
    if found is None:
        return ""
    if found.by_rows:
        return f": `{found.text}` divides it by the number of all rows, so on N processes it is N times too small"
    return f": `{found.text}` is the figure of its own rows, not of all"


def _whole(remedy: TotalRemedy) -> str:
    """How a total becomes that of all processes; it can be run as it is said."""
    place, value = remedy.place, remedy.value
    if remedy.how is OverAll.SUMMED:
        return _summed(dict(remedy.halves))
    if remedy.how is OverAll.SUMMED_OR_AVERAGED:
        ((name, read),) = remedy.halves
        total = f"after the loop: {name} = {_sum_of(name, read)}"
        return f'{total} if it adds up rows, with reduction="mean" if figures of whole batches (a loss)'
    if remedy.how is OverAll.AVERAGED:  # the mean of whole numbers is none that a tensor of such could hold
        return (
            f"average the result over the processes, after the loop: accelerator.reduce(torch.tensor(float({place}), "
            'device=accelerator.device), reduction="mean")'
        )
    if remedy.how is OverAll.AVERAGED_EACH:
        return (
            "average it over the processes where it is kept: "
            f"{place}.append(accelerator.reduce(torch.tensor(float({value}), device=accelerator.device), "
            'reduction="mean").item())'
        )
    if remedy.how is OverAll.AVERAGED_ADDED:
        return (
            "average it over the processes where it is added: "
            f"{place} += accelerator.reduce(torch.tensor(float({value}), device=accelerator.device), "
            'reduction="mean").item()'
        )
    if remedy.how is OverAll.JOINED:
        return (
            f"join the lists of all processes after the loop: {place} = accelerator.gather_for_metrics({place}, "
            "use_gather_object=True)"
        )
    kept = f"append(accelerator.gather_for_metrics({value}, use_gather_object=True))"
    if remedy.how is OverAll.JOINED_ALONE:
        kept = f"extend(accelerator.gather_for_metrics([{value}], use_gather_object=True))"
    return f"join the rows of all processes where they are kept: {place}.{kept}"


def _summed(totals: Mapping[str, str]) -> str:
    """
    How sums over the rows of one process become those over all rows: both halves of a quotient, before it.

    Args:
        totals: the text of each, and what reads it off a tensor again: ``.item()`` for a number.
    """
    one = len(totals) == 1
    if one or set(totals.values()) == {NUMBER}:
        targets = ", ".join(totals)
        value, read = (targets, totals[targets]) if one else (f"[{targets}]", ".tolist()")
        steps = [f"{targets} = {_sum_of(value, read)}"]
    else:
        steps = [f"{name} = {_sum_of(name, read)}" for name, read in totals.items()]
    them = "it" if one else "both" if len(totals) == 2 else "all of them"
    return f"add {them} up over the processes after the loop, before the division: {'; '.join(steps)}"


def _sum_of(value: str, read: str) -> str:
    made = "tensor" if read == NUMBER or value.startswith("[") else "as_tensor"
    return f'accelerator.reduce(torch.{made}({value}, device=accelerator.device), reduction="sum"){read}'


@worded.register(CountsFilled)
def _counts_filled(found: CountsFilled) -> Finding:
    names = ", ".join(f"`{figure}`" for figure in found.figures)
    sums = "this sum over the processes counts" if len(found.figures) == 1 else "these sums over the processes count"
    return Finding(
        "filled-batch",
        found.node,
        f"at the end of the data a shard is padded with repeated rows, and {sums} them: {names} may be slightly larger "
        "than over the rows of the data",
        _EXACT,
        Severity.NOTE,
        case="totals",
    )


@worded.register(AveragesFilled)
def _averages_filled(found: AveragesFilled) -> Finding:
    names = ", ".join(f"`{number}`" for number in found.numbers)
    return Finding(
        "filled-batch",
        found.node,
        "at the end of the data a shard is padded with repeated rows, and what is reduced over the processes here "
        f"({names}) counts them: the average of the epoch is close to that over the rows of the data but not equal to "
        "it",
        _EXACT,
        Severity.NOTE,
        case="totals",
    )


@worded.register(AveragesUneven)
def _averages_uneven(found: AveragesUneven) -> Finding:
    names = ", ".join(f"`{number}`" for number in found.numbers)
    why = "where the rows of a batch do not divide evenly, one process has more of them than another"
    rows, exact = (
        "the rows of the data",
        ("gather the rows in the training step, and compute it from them: accelerator.gather_for_metrics(...)"),
    )
    if found.chosen:
        why = "of the rows that are chosen, one process has more than another"
        rows, exact = (
            "all chosen rows",
            ('add up sums in place of means, and the numbers of rows, with accelerator.reduce(..., reduction="sum")'),
        )
    return Finding(
        "mean-of-batches",
        found.node,
        f"{why}, and the average over the processes ({names}) weighs each process alike: the average of the epoch is "
        f"close to that over {rows} but not equal to it",
        f"no action needed if close is good enough; for the exact figure, {exact}",
        Severity.NOTE,
        case="average",
    )


_EXACT = "no action needed if close is good enough; for the exact figure, use --keep-global-batch"
