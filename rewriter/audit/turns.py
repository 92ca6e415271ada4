"""What one process does alone, or before the others, as the script itself or a lock of files arranges it."""

from __future__ import annotations

import builtins
from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import outside_names
from ..analysis.dataflow.values import Instance, Unit
from ..analysis.effects.handles import asks_existence
from ..analysis.syntax.nodes import dotted, statements_before
from ..analysis.syntax.walk import children, descendants
from ..facts.torch_api import surroundings
from .program import AuditedProgram
from .single import says_one

_HANDLERS = (cst.ExceptHandler, cst.ExceptStarHandler)


def once(
    program: AuditedProgram, unit: Unit, node: cst.CSTNode, *, finds: bool, seen: frozenset[Code] = frozenset()
) -> bool:
    """
    Whether one process at most comes to a node, or the processes come one after the other and whoever comes later finds
    what is there; however its function is reached.

    ``finds``: the node itself does nothing if that is there already.
    """
    if program.guards.confines(unit, node) or says_one(program, unit, node) or program.constants.excludes(unit, node):
        return True
    if isinstance(node, cst.If) and program.guards.asks(unit, node.test):
        if program.guards.confines(unit, node.body.body[0]):
            return True  # ``if rank == 0 and not os.path.exists(path):``
    met = False
    for around, below in unit.names.outwards(node):
        if isinstance(around, (cst.IndentedBlock, cst.Module)):
            for statement in reversed(list(statements_before(around, below))):
                waits = program.waits(unit, statement)
                if waits and finds and not met and _waits_until(program, unit, statement, node):
                    return True
                met = met or waits
                finds = finds or _returns_if_found(program, unit, statement)
        finds = finds or _is_of_missing(program, unit, around, below)
        if finds and isinstance(around, cst.With) and below is around.body:
            if any(_orders(program, unit, item.item) for item in around.items):
                return True
    return program.at_every_site(
        unit,
        node,
        seen,
        lambda site, known: (
            program.constants.passes_by(unit, node, site)
            or once(program, site.unit, site.node, finds=finds, seen=known)
        ),
    )


def only_if_missing(
    program: AuditedProgram, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()
) -> bool:
    """Whether a node is only reached after it was asked for a file and that was not there, or by one process."""
    if program.guards.confines(unit, node) or says_one(program, unit, node) or program.constants.excludes(unit, node):
        return bool(seen)
    for around, below in unit.names.outwards(node):
        if isinstance(around, (cst.IndentedBlock, cst.Module)):
            if any(_returns_if_found(program, unit, s) for s in statements_before(around, below)):
                return True
        if _is_of_missing(program, unit, around, below, alone=True):
            return True
    return program.at_every_site(
        unit, node, seen, lambda site, known: only_if_missing(program, site.unit, site.node, known)
    )


def _waits_until(program: AuditedProgram, unit: Unit, statement: cst.CSTNode, node: cst.CSTNode) -> bool:
    """``if rank != 0: barrier()``, and a barrier after a node that the first process comes to then."""
    if not isinstance(statement, cst.If) or not program.guards.asks(unit, statement.test):
        return False
    if not program.waits(unit, statement.body) or statement.orelse is not None:
        return False
    inside = set(descendants(node))
    later = (
        call for call in unit.names.calls if call not in inside and unit.names.order(call) > unit.names.order(node)
    )
    function = unit.names.function(node)
    own = (call for call in later if unit.names.function(call) is function)
    return any(program.waits(unit, call) for call in own)


def _returns_if_found(program: AuditedProgram, unit: Unit, statement: cst.CSTNode) -> bool:
    """``if path.exists(): return``."""
    if not isinstance(statement, cst.If):
        return False
    for branch in (statement.body, statement.orelse):
        if branch is not None and any(isinstance(node, cst.Return) for node in descendants(branch)):
            if _is_taken_if(program, unit, statement, branch, there=True):
                return True
    return False


def _is_of_missing(
    program: AuditedProgram, unit: Unit, around: cst.CSTNode, below: cst.CSTNode, *, alone: bool = False
) -> bool:
    """
    Whether a part of a statement runs if a file is missing: a branch, or the handler of an error of reading it.

    ``alone``: never otherwise, as under ``if new or not path.exists()``.
    """
    if isinstance(around, _HANDLERS):
        return not alone or _is_of_files(around)
    if not isinstance(around, cst.If) or below is around.test:
        return False
    either = any(
        isinstance(n, cst.BooleanOperation) and isinstance(n.operator, cst.Or) for n in descendants(around.test)
    )
    return not (alone and either) and _is_taken_if(program, unit, around, below, there=False)


def _is_of_files(handler: cst.ExceptHandler | cst.ExceptStarHandler) -> bool:
    """``except FileNotFoundError``: nothing but an error of a file leads there."""
    error = getattr(builtins, handler.type.value, None) if isinstance(handler.type, cst.Name) else None
    return isinstance(error, type) and issubclass(error, OSError)


def _is_taken_if(program: AuditedProgram, unit: Unit, question: cst.If, branch: cst.CSTNode, *, there: bool) -> bool:
    """Whether a branch is the one that is taken if a file is there, or is missing."""
    return any((branch is question.body) is (answer is there) for answer in _asks(program, unit, question.test))


def _asks(program: AuditedProgram, unit: Unit, test: cst.CSTNode, *, follows: bool = True) -> Iterator[bool]:
    """For each question for a file in a condition, asked directly or by a variable (``follows``): whether it is true if
    the file is there."""
    if asks_existence(test):
        yield True
    elif isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        yield from (not answer for answer in _asks(program, unit, test.expression, follows=follows))
    else:
        if follows and isinstance(test, (cst.Name, cst.Attribute)):
            for source in program.tracer.sources(unit, test):
                yield from _asks(program, source.unit, source.node, follows=False)
        for part in children(test):
            yield from _asks(program, unit, part, follows=follows)


def _orders(program: AuditedProgram, unit: Unit, entered: cst.BaseExpression) -> bool:
    """Whether a context lets the processes in one after the other: a lock, or a barrier that some wait at first."""
    for source in program.tracer.sources(unit, entered):
        record = program.state.calls.get(source.node) if isinstance(source.node, cst.Call) else None
        if record is None:
            continue
        if any(map(surroundings.locks, outside_names(record))):
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
        if isinstance(node, cst.Call) and program.waits(unit, node):
            tests = (around.test for around in unit.names.enclosing(node, cst.If) if isinstance(around, cst.If))
            if any(program.guards.asks(unit, test) for test in tests):
                return True
    return False
