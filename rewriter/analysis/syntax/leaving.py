"""Code that leaves what is around it: ``return``, ``raise``, ``continue``, ``break``; and where exceptions lead to."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from .nodes import dotted

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


def exits_quietly(call: cst.Call) -> bool:
    """Whether a call such as ``sys.exit(0)`` gives the status of success."""
    status = call.args[0].value if call.args else None
    word = getattr(status, "value", None)
    return status is None or (isinstance(status, (cst.Integer, cst.Name)) and word in ("0", "None", "False"))


def quiet_exit(node: cst.Raise) -> bool:
    """``raise SystemExit``: the process ends with the status of success."""
    raised = node.exc
    if isinstance(raised, cst.Call):
        return dotted(raised.func).rpartition(".")[2] == "SystemExit" and exits_quietly(raised)
    return dotted(raised).rpartition(".")[2] == "SystemExit"
