"""Code that runs in a job of one process only: the script says so, and stops or goes another way if there are more."""

from __future__ import annotations

import libcst as cst

from ..analysis.dataflow import ranks
from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import method_name, outside_name
from ..analysis.dataflow.containers import key_of
from ..analysis.dataflow.values import Unit, origins
from ..analysis.syntax.nodes import is_minus_one
from ..analysis.syntax.walk import descendants
from ..facts.roles import Role
from .program import AuditedProgram


def on_one_process(program: AuditedProgram, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()) -> bool:
    """Whether a node is only reached where a check says that there is one process, however its function is called."""
    if says_one(program, unit, node):
        return True
    return program.at_every_site(
        unit, node, seen, lambda site, known: on_one_process(program, site.unit, site.node, known)
    )


def says_one(program: AuditedProgram, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a node's own function checks before it, or around it, that there is one process."""
    below = node
    taken: list[_Held] = []
    for around in unit.names.ancestors(node):
        if isinstance(around, (cst.If, cst.IfExp)) and below is not around.test:
            if _is_true_of_one(program, unit, around.test) is (below is around.body):
                return True
            taken.append(_plain(around.test, below is around.body))
        if isinstance(around, (cst.IndentedBlock, cst.Module)):
            for statement in around.body:
                if statement is below:
                    break
                if _wants_one(program, unit, statement) or _forbids(program, unit, statement, taken):
                    return True
        if isinstance(around, (cst.FunctionDef, cst.Lambda)):
            break
        below = around
    return False


_Held = tuple[cst.BaseExpression, bool]
"""A condition, and whether it is true."""


def _plain(test: cst.BaseExpression, truth: bool) -> _Held:
    while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, truth = test.expression, not truth
    return test, truth


def _forbids(program: AuditedProgram, unit: Unit, statement: cst.CSTNode, taken: list[_Held]) -> bool:
    """Whether a statement stops several processes that would take a branch: ``if distributed: assert not evolve``."""
    if not isinstance(statement, cst.If) or not isinstance(statement.body, cst.IndentedBlock):
        return False
    if not taken or _is_true_of_one(program, unit, statement.test) is not False:
        return False
    stopped: list[_Held] = []
    for row in statement.body.body:
        small = row.body[0] if isinstance(row, cst.SimpleStatementLine) else None
        if isinstance(small, cst.Assert):
            stopped.append(_plain(small.test, False))
        elif isinstance(row, cst.If) and _raises(row):
            stopped.append(_plain(row.test, True))
    return any(truth is there and test.deep_equals(other) for test, truth in stopped for other, there in taken)


def _raises(statement: cst.If) -> bool:
    """Whether a condition raises an error where it is true."""
    last = statement.body.body[-1] if isinstance(statement.body, cst.IndentedBlock) else None
    return isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)


def _asks_group(program: AuditedProgram, test: cst.CSTNode) -> bool:
    """Whether a condition asks for an open group, or for the wrapper that a model has in one."""
    if not isinstance(test, cst.Call):
        return False
    if method_name(test) == "hasattr" and len(test.args) == 2:
        return key_of(test.args[1].value) == "module"
    record = program.state.calls.get(test)
    return record is not None and outside_name(record) == "torch.distributed.is_initialized"


def _wants_one(program: AuditedProgram, unit: Unit, statement: cst.CSTNode) -> bool:
    """``assert get_world_size() == 1``, ``if get_world_size() > 1: raise``, ``assert local_rank == -1``."""
    if isinstance(statement, cst.If):
        return _raises(statement) and _is_true_of_one(program, unit, statement.test) is False
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return isinstance(small, cst.Assert) and _is_true_of_one(program, unit, small.test) is True


def _is_test(node: cst.CSTNode) -> bool:
    return isinstance(node, (cst.Comparison, cst.UnaryOperation, cst.Call))


def _is_true_of_one(program: AuditedProgram, unit: Unit, test: cst.CSTNode) -> bool | None:
    """
    What a condition is if there is one process, and is not if there are several; None where it says nothing of that.

    It compares the number of processes with 1, or a rank with the -1 that stands for "not distributed"; or it asks for
    an open group.
    """
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        answer = _is_true_of_one(program, unit, test.expression)
        return None if answer is None else not answer
    if isinstance(test, (cst.Name, cst.Attribute)):
        made = [source for source in program.tracer.sources(unit, test) if source.node is not test]
        answers = {_is_true_of_one(program, source.unit, source.node) for source in made if _is_test(source.node)}
        return answers.pop() if len(answers) == 1 and all(_is_test(source.node) for source in made) else None
    if _asks_group(program, test):
        return False
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    target = test.comparisons[0]
    if isinstance(target.comparator, cst.Integer) and target.comparator.value == "1":
        known = _is_size(program, test.left)
    else:
        known = is_minus_one(target.comparator) and program.ranks.asks(unit, test.left)
    if not known or not isinstance(target.operator, (cst.Equal, cst.NotEqual, cst.GreaterThan)):
        return None
    return isinstance(target.operator, cst.Equal)


def _is_size(program: AuditedProgram, node: cst.BaseExpression) -> bool:
    held = origins(program.state.values.get(node), Role.PLACE)
    if any(origin.qualified == ranks.WORLD_SIZE for origin in held):
        return True
    named = any(isinstance(n, cst.Attribute) and n.attr.value in _SIZES for n in descendants(node))
    return named or (isinstance(node, cst.Call) and method_name(node) == "get_world_size")


_SIZES = frozenset({"world_size", "num_processes"})
