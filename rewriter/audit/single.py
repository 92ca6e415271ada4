"""Code that runs in a job of one process only: the script says so, and stops or goes another way if there are more."""

from __future__ import annotations

import libcst as cst

from ..analysis.dataflow import ranks
from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.containers import key_of
from ..analysis.dataflow.values import Unit, origins
from ..analysis.syntax.walk import descendants
from ..analysis.training.training import method_name, outside_name
from ..facts.roles import Role
from .program import AuditedProgram


def on_one_process(program: AuditedProgram, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()) -> bool:
    """Whether a node is only reached where a check says that there is one process, however its function is called."""
    below = node
    for around in unit.names.ancestors(node):
        if isinstance(around, (cst.If, cst.IfExp)) and below is not around.test:
            if _is_one(program, around.test) is (below is around.body):
                return True
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


def _is_one(program: AuditedProgram, test: cst.BaseExpression) -> bool | None:
    """Whether a condition holds in a job of one process (True), or in one of several (False); None for any other."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        answer = _is_one(program, test.expression)
        return None if answer is None else not answer
    if _counts(program, test, (cst.Equal,)):
        return True
    if _counts(program, test, (cst.NotEqual, cst.GreaterThan)) or _asks_group(program, test):
        return False
    return None


def _asks_group(program: AuditedProgram, test: cst.BaseExpression) -> bool:
    """Whether a condition asks for an open group, or for the wrapper that a model has in one."""
    if any(origin.qualified == ranks.FLAG for origin in origins(program.state.values.get(test), Role.PLACE)):
        return True
    if not isinstance(test, cst.Call):
        return False
    if method_name(test) == "hasattr" and len(test.args) == 2:
        return key_of(test.args[1].value) == "module"
    record = program.state.calls.get(test)
    return record is not None and outside_name(record) == "torch.distributed.is_initialized"


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
