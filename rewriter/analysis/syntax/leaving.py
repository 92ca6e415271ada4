"""Code that leaves what is around it: ``return``, ``raise``, ``continue``, ``break``; and where exceptions lead to."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

HANDLERS = (cst.ExceptHandler, cst.ExceptStarHandler, cst.Finally)
"""Where an exception leads to: the process that it is raised in comes there, or comes there before the others."""


def ends(branch: cst.CSTNode, exits: Callable[[cst.CSTNode], bool]) -> bool:
    """Whether a branch always leaves the code around it; ``exits``: whether a call ends the process."""
    block = branch.body if isinstance(branch, cst.Else) else branch
    last = block.body[-1] if isinstance(block, (cst.IndentedBlock, cst.SimpleStatementSuite)) else block
    if isinstance(last, cst.If):
        return last.orelse is not None and ends(last.body, exits) and ends(last.orelse, exits)
    if isinstance(last, (cst.With, cst.Try)):
        return ends(last.body, exits)
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
    jumps = (cst.Return, cst.Continue, cst.Break, cst.Raise)
    return isinstance(small, jumps) or (isinstance(small, cst.Expr) and exits(small.value))
