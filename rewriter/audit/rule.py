"""A rule of the audit: an id, its documentation, and the function that finds what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.values import Unit
from ..findings import Finding
from .program import AuditedProgram

Found = Iterator[tuple[Unit, Finding]]


class AuditRule(NamedTuple):
    """One rule of the audit."""

    id: str
    doc: str
    """What is wrong and how to fix it: the text of ``--explain``."""
    body: Callable[[AuditedProgram], Found]

    @property
    def summary(self) -> str:
        """The sentence that opens the documentation."""
        return " ".join(self.doc.strip().split("\n\n")[0].split())


def first_row(unit: Unit, node: cst.CSTNode) -> str:
    """The first line of some code that is no comment, cut where it is long."""
    rows = unit.names.module.code_for_node(node).strip().split("\n")
    return line_of(next((row for row in rows if row.strip() and not row.lstrip().startswith("#")), ""))


def line_of(text: str) -> str:
    """Some code on one line, cut where it is long."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else flat[:57] + "..."
