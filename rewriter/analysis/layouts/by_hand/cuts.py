"""A place at which a batch can be cut into shards."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from ...dataflow.values import Unit
from ..engine.layout import Layout


class Cut(NamedTuple):
    """A place at which a batch can be cut."""

    node: cst.BaseExpression
    """What is cut: a call, an index, a read of a variable; with ``at``, a name that the loop sets."""
    unit: Unit
    layout: Layout
    sizes: frozenset[str] = frozenset()
    """The spellings of the number of rows of the whole batch."""
    at: cst.For | None = None
    """The loop at the top of whose turns it is cut."""
    before: cst.BaseStatement | None = None
    """The statement before which what the call is assigned to is cut: where one of several calls gives it."""
    source: str = ""
    """What hands the batches out, where nothing is known of it: it may be a data loader."""
