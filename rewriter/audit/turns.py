"""Blocks that one process enters before the others, as the script itself or a lock of files arranges it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.values import Instance, Unit
from ..analysis.effects.handles import asks_existence
from ..analysis.syntax.nodes import dotted
from ..analysis.syntax.walk import descendants
from ..analysis.training.training import method_name, outside_names
from ..facts.torch_api import questions
from .program import AuditedProgram

_HANDLERS = (cst.ExceptHandler, cst.ExceptStarHandler)


def in_turn(
    program: AuditedProgram, unit: Unit, node: cst.CSTNode, *, finds: bool, seen: frozenset[Code] = frozenset()
) -> bool:
    """
    Whether the processes come to a node one after the other, however its function is reached, and whoever comes later
    finds what is there.

    ``finds``: the node itself does nothing if that is there already.
    """
    below: cst.CSTNode | None = None
    for around in (node, *unit.names.ancestors(node)):
        if isinstance(around, (cst.FunctionDef, cst.Lambda, cst.Module)):
            break
        if isinstance(around, cst.IndentedBlock) and below is not None:
            finds = finds or any(_returns_if_found(program, unit, s) for s in _before(around, below))
        finds = finds or isinstance(around, _HANDLERS)
        finds = finds or (isinstance(around, cst.If) and _asks(program, unit, around.test))
        if isinstance(around, cst.With) and below is around.body:
            if any(_orders(program, unit, item.item) for item in around.items):
                return finds
        below = around
    code = unit.names.function(node)
    sites = list(program.sites(code))
    if code in seen or not sites:
        return False
    block = getattr(code, "body", None)
    if isinstance(block, cst.IndentedBlock) and below is not None:
        finds = finds or any(_returns_if_found(program, unit, s) for s in _before(block, below))
    return all(in_turn(program, site.unit, site.node, finds=finds, seen=seen | {code}) for site in sites)


def _before(block: cst.IndentedBlock, below: cst.CSTNode) -> Iterator[cst.BaseStatement]:
    """The statements of a block before one of them."""
    for statement in block.body:
        if statement is below:
            return
        yield statement


def _returns_if_found(program: AuditedProgram, unit: Unit, statement: cst.CSTNode) -> bool:
    """``if path.exists(): return``."""
    if not isinstance(statement, cst.If) or not _asks(program, unit, statement.test):
        return False
    return any(isinstance(node, cst.Return) for node in descendants(statement.body))


def _asks(program: AuditedProgram, unit: Unit, test: cst.BaseExpression) -> bool:
    """Whether a condition asks for a file, directly or by a variable."""
    for part in descendants(test):
        if asks_existence(part):
            return True
        if isinstance(part, (cst.Name, cst.Attribute)):
            if any(asks_existence(n) for s in program.tracer.sources(unit, part) for n in descendants(s.node)):
                return True
    return False


def _orders(program: AuditedProgram, unit: Unit, entered: cst.BaseExpression) -> bool:
    """Whether a context lets the processes in one after the other: a lock, or a barrier that some wait at first."""
    for source in program.tracer.sources(unit, entered):
        record = program.state.calls.get(source.node) if isinstance(source.node, cst.Call) else None
        if record is None:
            continue
        if any(map(questions.locks, outside_names(record))):
            return True
        entering = [f for f in program.reach.called(record.node) if isinstance(f, cst.FunctionDef) and _is_context(f)]
        for thing in record.result.things:
            method = thing.klass.method("__enter__") if isinstance(thing, Instance) else None
            entering += [method.node] if method is not None and isinstance(method.node, cst.FunctionDef) else []
        if any(_waits_first(program, function) for function in entering):
            return True
    return False


def _is_context(function: cst.FunctionDef) -> bool:
    return any(dotted(d.decorator).rpartition(".")[2] == "contextmanager" for d in function.decorators)


def _waits_first(program: AuditedProgram, function: cst.FunctionDef) -> bool:
    """Whether some processes wait at a barrier before the body of a context begins."""
    unit = program.reach.unit(function)
    for node in descendants(function.body):
        if isinstance(node, cst.Yield):
            return False
        if isinstance(node, cst.Call) and method_name(node) in ("barrier", "wait_for_everyone"):
            tests = (around.test for around in unit.names.enclosing(node, cst.If) if isinstance(around, cst.If))
            if any(program.guards.asks(unit, test) for test in tests):
                return True
    return False
