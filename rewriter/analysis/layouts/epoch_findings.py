"""What is said of the totals of training: those that stay of one process, and those that count repeated rows."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from ...findings import Finding, Severity

_EXACT = "no action needed if close is good enough; for the exact figure, use --keep-global-batch"


def stays(node: cst.CSTNode, figure: str = "") -> Finding:
    """A total of one process's own rows; ``figure``: what that makes of a quotient, as the end of a sentence."""
    return Finding(
        "metrics_gather",
        node,
        f"each process totals only its own shard of the data here{figure}",
        "gather the values it is computed from, in the training step: accelerator.gather_for_metrics(...)",
        Severity.REVIEW,
    )


def stays_joint(node: cst.CSTNode, value: str, figure: str) -> Finding:
    """A total of figures of whole batches, or what it is divided by: those of joined batches are others."""
    because = f", because `{value}` is a figure of one whole batch, and joined batches have another" if value else ""
    return Finding(
        "metrics_gather",
        node,
        f"each process totals only its own shard of the data here{because}{figure}",
        "no action needed if the figure of one process is enough; otherwise average the result over the processes, "
        'after the loop: accelerator.reduce(torch.tensor(result, device=accelerator.device), reduction="mean")',
        Severity.REVIEW,
    )


def counts_filled(node: cst.CSTNode, quotient: str) -> Finding:
    """A sum over the processes that is divided by the number of all rows."""
    return Finding(
        "filled-batch",
        node,
        f"at the end of the data a shard is padded with repeated rows, and this sum over the processes counts them: "
        f"`{quotient}` may be slightly larger than over the rows of the data",
        _EXACT,
        Severity.NOTE,
    )


def weighed_filled(node: cst.CSTNode, means: Sequence[str]) -> Finding:
    """Means over the processes that are weighed by the number of rows."""
    names = ", ".join(f"`{mean}`" for mean in means)
    return Finding(
        "filled-batch",
        node,
        f"at the end of the data a shard is padded with repeated rows, and the mean of {names} over the processes "
        "counts them: the average of the epoch, weighed by the number of rows, is close to that over the rows of the "
        "data but not equal to it",
        _EXACT,
        Severity.NOTE,
    )
