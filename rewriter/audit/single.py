"""Code that runs in a job of one process only: the script says so, and stops if there are more."""

from __future__ import annotations

import libcst as cst

from ..analysis.dataflow import ranks
from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.values import Unit, origins
from ..analysis.syntax.walk import descendants
from ..analysis.training.training import method_name
from ..facts.roles import Role
from .program import AuditedProgram


def on_one_process(program: AuditedProgram, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()) -> bool:
    """Whether a node is only reached after a check that there is one process, however its function is called."""
    below = node
    for around in unit.names.ancestors(node):
        if isinstance(around, (cst.IndentedBlock, cst.Module)):
            for statement in around.body:
                if statement is below:
                    break
                if _wants_one(program, statement):
                    return True
        if isinstance(around, (cst.FunctionDef, cst.Lambda)):
            break
        below = around
    code = unit.names.function(node)
    sites = list(program.sites(code))
    if code in seen or not sites:
        return False
    return all(on_one_process(program, site.unit, site.node, seen | {code}) for site in sites)


def _wants_one(program: AuditedProgram, statement: cst.CSTNode) -> bool:
    """``assert get_world_size() == 1``, ``if get_world_size() > 1: raise``."""
    if isinstance(statement, cst.If):
        last = statement.body.body[-1] if isinstance(statement.body, cst.IndentedBlock) else None
        ends = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else None
        return isinstance(ends, cst.Raise) and _counts(program, statement.test, (cst.NotEqual, cst.GreaterThan))
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(small, cst.Assert) and _counts(program, small.test, (cst.Equal,))


def _counts(program: AuditedProgram, test: cst.BaseExpression, operators: tuple[type[cst.BaseCompOp], ...]) -> bool:
    """Whether a condition compares the number of processes with 1."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    target = test.comparisons[0]
    one = isinstance(target.comparator, cst.Integer) and target.comparator.value == "1"
    return one and isinstance(target.operator, operators) and _is_size(program, test.left)


def _is_size(program: AuditedProgram, node: cst.BaseExpression) -> bool:
    held = origins(program.state.values.get(node), Role.PLACE)
    if any(origin.qualified == ranks.WORLD_SIZE for origin in held):
        return True
    named = any(isinstance(n, cst.Attribute) and n.attr.value in _SIZES for n in descendants(node))
    return named or (isinstance(node, cst.Call) and method_name(node) == "get_world_size")


_SIZES = frozenset({"world_size", "num_processes"})
