"""What is said of the totals of training: those that stay of one process, and those that count repeated rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from ....findings import Finding, Severity

_EXACT = "no action needed if close is good enough; for the exact figure, use --keep-global-batch"


def stays(node: cst.CSTNode, figure: str = "", by_hand: str = "") -> Finding:
    """
    A total of one process's own rows.

    Args:
        node: the statement that collects.
        figure: what that makes of a quotient, as the end of a sentence.
        by_hand: what makes it that of all processes.
    """
    return Finding(
        "metrics_gather",
        node,
        f"each process totals only its own shard of the data {_in(_collected(node))}{figure}",
        by_hand
        or "where it adds up rows, gather them in the training step: accelerator.gather_for_metrics(...); where it "
        "adds up figures of whole batches (a loss, a penalty), average those, in a float tensor: "
        'accelerator.reduce(..., reduction="mean")',
        Severity.REVIEW,
        case="total",
    )


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


def _in(name: str) -> str:
    return f"in `{name}`" if name else "here"


def stays_joint(node: cst.CSTNode, values: Sequence[str], figure: str, by_hand: str) -> Finding:
    """Totals of figures of whole batches, and what they are divided by: the figures of joined batches are others."""
    names = ", ".join(f"`{value}`" for value in values)
    one = len(values) == 1
    because = f"{names} {'is a figure' if one else 'are figures'} of one whole batch, and joined batches have others"
    return _stays_own(node, f", because {because}{figure}", by_hand)


def stays_single(node: cst.CSTNode, why: str, figure: str, by_hand: str) -> Finding:
    """A total of batches of one row that cannot be joined, and is no number that could be reduced."""
    return _stays_own(node, f", because {why}{figure}", by_hand)


def _stays_own(node: cst.CSTNode, more: str, by_hand: str) -> Finding:
    return Finding(
        "metrics_gather",
        node,
        f"each process totals only its own shard of the data {_in(_collected(node))}{more}",
        f"no action needed if the figure of one process is enough; otherwise {by_hand}",
        Severity.REVIEW,
        case="total",
    )


def listed(name: str) -> str:
    """How the entries of a list become those of all processes."""
    return (
        f"join the lists of all processes after the loop: {name} = accelerator.gather_for_metrics({name}, "
        "use_gather_object=True)"
    )


def listed_each(place: str, value: str) -> str:
    """How the rows that are kept batch by batch become those of all processes: a list of batches cannot be joined."""
    return (
        "join the rows of all processes where they are kept: "
        f"{place}.append(accelerator.gather_for_metrics({value}, use_gather_object=True))"
    )


def listed_alone(place: str, value: str) -> str:
    """How what is kept of the one row that each batch has becomes that of all processes."""
    return (
        "join the rows of all processes where they are kept: "
        f"{place}.extend(accelerator.gather_for_metrics([{value}], use_gather_object=True))"
    )


def averaged_each(place: str, value: str) -> str:
    """How one figure for each batch becomes the mean of those of the processes."""
    return (
        "average it over the processes where it is kept: "
        f"{place}.append(accelerator.reduce(torch.tensor(float({value}), device=accelerator.device), "
        'reduction="mean").item())'
    )


def summed(totals: Mapping[str, str]) -> str:
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


def either(name: str, read: str) -> str:
    """How a total becomes that of all processes, of which it is not known what it adds up."""
    total = f"after the loop: {name} = {_sum_of(name, read)}"
    return f'{total} if it adds up rows, with reduction="mean" if figures of whole batches (a loss)'


NUMBER = ".item()"
"""Reads a number off a tensor."""


def _sum_of(value: str, read: str) -> str:
    made = "tensor" if read == NUMBER or value.startswith("[") else "as_tensor"
    return f'accelerator.reduce(torch.{made}({value}, device=accelerator.device), reduction="sum"){read}'


def averaged(name: str) -> str:
    """How a total of figures of batches becomes the mean of those of the processes. The mean of whole numbers is none
    that a tensor of such could hold."""
    return (
        f"average the result over the processes, after the loop: accelerator.reduce(torch.tensor(float({name}), "
        'device=accelerator.device), reduction="mean")'
    )


def counts_filled(node: cst.CSTNode, figures: Sequence[str]) -> Finding:
    """Sums over the processes, and what they become when they are divided by the number of all rows."""
    names = ", ".join(f"`{figure}`" for figure in figures)
    sums = "this sum over the processes counts" if len(figures) == 1 else "these sums over the processes count"
    return Finding(
        "filled-batch",
        node,
        f"at the end of the data a shard is padded with repeated rows, and {sums} them: {names} may be slightly larger "
        "than over the rows of the data",
        _EXACT,
        Severity.NOTE,
        case="totals",
    )


def averages_filled(node: cst.CSTNode, numbers: Sequence[str]) -> Finding:
    """Means that are weighed by the number of rows, and sums that are divided by one another."""
    names = ", ".join(f"`{number}`" for number in numbers)
    return Finding(
        "filled-batch",
        node,
        f"at the end of the data a shard is padded with repeated rows, and what is reduced over the processes here "
        f"({names}) counts them: the average of the epoch is close to that over the rows of the data but not equal to "
        "it",
        _EXACT,
        Severity.NOTE,
        case="totals",
    )


def averages_uneven(node: cst.CSTNode, numbers: Sequence[str]) -> Finding:
    """Means of batches that are cut by hand, weighed by the number of rows."""
    names = ", ".join(f"`{number}`" for number in numbers)
    return Finding(
        "mean-of-batches",
        node,
        f"where the rows of a batch do not divide evenly, one process has more of them than another, and the average "
        f"over the processes ({names}) weighs each process alike: the average of the epoch is close to that over the "
        "rows of the data but not equal to it",
        "no action needed if close is good enough; for the exact figure, gather the rows in the training step, and "
        "compute it from them: accelerator.gather_for_metrics(...)",
        Severity.NOTE,
        case="average",
    )
