"""
Findings with their places: line, column and end, and the same of their causes, in whatever file of the program.

Only what has a finding costs anything: the end of a node is the length of its own text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from ..findings import Cause, Finding
from ..result import CausePlace, Diagnosis
from ..source import Source
from .positions import Starts, start

_COMPOUND = (cst.BaseCompoundStatement, cst.ExceptHandler, cst.Else, cst.Finally)


@dataclass(frozen=True)
class Located:
    """A file, its tree, and where the nodes of the tree start."""

    source: Source
    tree: cst.Module
    starts: Starts

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text, as the places count them."""
        return [line.rstrip("\r") for line in self.source.text.split("\n")]


def diagnoses_of(findings: Iterable[Finding], file: Located, program: Sequence[Located] = ()) -> tuple[Diagnosis, ...]:
    """Findings with their places, in the order of the source; one that says the same of the same line once."""
    found: dict[tuple[object, ...], Diagnosis] = {}
    for each in sorted((diagnosis_of(f, file, program) for f in findings), key=lambda d: (d.line, d.column)):
        found.setdefault((each.id, each.line, each.message, each.remedy), each)
    return tuple(found.values())


def diagnosis_of(finding: Finding, file: Located, program: Sequence[Located] = ()) -> Diagnosis:
    """A finding with its place; ``program``: all files, where its cause may be."""
    line, column, end = _span(file, finding.node)
    if finding.part is not None:
        there, first, last = _span(file, finding.part)
        if there == line:
            column, end = first, last
    cause = _cause(finding.cause, file, program) if finding.cause is not None else None
    if cause is not None and not cause.path and cause.line == line:
        cause = None  # nothing to see that is not shown already
    return Diagnosis(
        finding.id, finding.severity, finding.message, finding.remedy, line, column, end, cause, finding.case
    )


def _cause(cause: Cause, file: Located, program: Sequence[Located]) -> CausePlace | None:
    for one in (file, *program):
        line, column, end = _span(one, cause.node)
        if 0 < line <= len(one.lines):
            path = "" if one.source.path == file.source.path else str(one.source.path)
            return CausePlace(cause.label, line, column, end, one.lines[line - 1], path)
    return None


def _span(file: Located, node: cst.CSTNode | None) -> tuple[int, int, int]:
    """Where a node starts, and where it ends on that line; of a statement with a body, its head."""
    line, column = start(file.starts, node)
    if node is None or not line or line > len(file.lines):
        return line, column, 0
    rest = file.lines[line - 1][column - 1 :].rstrip()
    if isinstance(node, _COMPOUND):
        header = getattr(getattr(node, "body", None), "header", None)
        comment = header.comment.value if header is not None and header.comment is not None else ""
        return line, column, column + len(rest.removesuffix(comment).rstrip())
    text = file.tree.code_for_node(_bare(node)).strip().split("\n")[0].rstrip()
    return line, column, column + min(len(text), len(rest))


def _bare(node: cst.CSTNode) -> cst.CSTNode:
    """A node without what is around it: brackets, comments, the lines above it."""
    if isinstance(node, cst.SimpleStatementLine):
        return node.with_changes(leading_lines=(), trailing_whitespace=cst.TrailingWhitespace())
    if isinstance(node, cst.BaseSmallStatement):
        return node.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
    if isinstance(node, cst.Arg):
        return node.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace(""))
    return node.with_changes(lpar=(), rpar=()) if getattr(node, "lpar", ()) else node
