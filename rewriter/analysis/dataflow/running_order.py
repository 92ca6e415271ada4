"""Which functions run only after a method of the same object has run, on every way from the start of the program."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import libcst as cst

from ..syntax.nodes import dotted
from ..syntax.walk import descendants
from .call_graph import Code, Reach
from .values import Unit

_NOT_ALWAYS = (cst.IfExp, cst.BooleanOperation, cst.Lambda, cst.BaseComp)


def without(reach: Reach, first: Code) -> set[Code]:
    """
    The code that may run though a method has not, or not on the same object.

    A call counts as made after the method where the same block, or one around it, calls the method before, on what is
    called the same and was not assigned again: ``trainer.fit()``, then ``trainer.test()``.
    """
    found: set[Code] = {first}
    pending: list[Code] = [unit.names.module for unit in reach.units]
    pending += [code for code in reach.state.escaped if code in reach.reachable]
    while pending:
        code = pending.pop()
        if code in found:
            continue
        found.add(code)
        unit = reach.unit(code)
        for node in reach.own(code):
            called = reach.called(node) if isinstance(node, cst.Call) else []
            if isinstance(node, cst.Call) and called and not _is_after(reach, unit, node, first):
                pending += called
    return found - {first}


def _is_after(reach: Reach, unit: Unit, call: cst.Call, first: Code) -> bool:
    """Whether a method of the object of a call has certainly run before, in the same code."""
    owner = _owner(call)
    if not owner:
        return False
    order, here = unit.names.order, unit.names.order(call)
    for earlier in _certain(unit, call):
        if reach.called(earlier) == [first] and _owner(earlier) == owner:
            root = owner.partition(".")[0]
            bound = unit.names.scopes[unit.names.function(call)].lookup(root)
            if bound is not None and not any(order(earlier) < order(d) < here for d in bound.definitions):
                return True
    return False


def _owner(call: cst.Call) -> str:
    """The object whose method is called, as it is spelled."""
    return dotted(call.func.value) if isinstance(call.func, cst.Attribute) else ""


def _certain(unit: Unit, node: cst.CSTNode) -> Iterator[cst.Call]:
    """The calls that certainly come before a node: in the statements before it of the blocks around it."""
    below, code = node, unit.names.function(node)
    for around in unit.names.ancestors(node):
        if isinstance(around, (cst.IndentedBlock, cst.Module)):
            for statement in around.body:
                if statement is below:
                    break
                yield from _made(unit, statement)
        if around is code:
            return
        below = around


def _made(unit: Unit, statement: cst.CSTNode) -> Iterator[cst.Call]:
    """The calls of a simple statement that are made whenever it runs."""
    if isinstance(statement, cst.SimpleStatementLine):
        for call in (n for small in statement.body for n in _calls(small)):
            between = itertools.takewhile(lambda node: node is not statement, unit.names.ancestors(call))
            if not any(isinstance(around, _NOT_ALWAYS) for around in between):
                yield call


def _calls(node: cst.CSTNode) -> Iterator[cst.Call]:
    return (n for n in descendants(node) if isinstance(n, cst.Call))
