"""Asking a running pass how the rows of the batch in hand lie on the processes."""

from __future__ import annotations

from typing import Any

from .progress import Pass
from .shares import Shares


def shares_in_hand(batches: Any) -> tuple[int, Shares] | None:
    """
    The rank of this process, and the `Shares` of the batch that a prepared loader's iterator has handed out last.

    None for any other iterator, on one process, and before the first batch.
    """
    one = getattr(batches, "_pass", None)
    if not isinstance(one, Pass) or one.shares is None:
        return None
    return batches._share.options.world.rank, one.shares
