"""What runs only after a function has run, on every way from the start of the program."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

import libcst as cst

from ..syntax.definitions import bindings_value
from ..syntax.nodes import dotted
from ..syntax.walk import descendants, nodes_in
from .call_graph import Code, Reach
from .values import Unit

_NOT_ALWAYS = (cst.IfExp, cst.BooleanOperation, cst.Lambda, cst.BaseComp)


def without(reach: Reach, *first: Code) -> set[Code]:
    """
    The code that may run though a method, or one of several, has not, or not on the same object.

    A call counts as made after the method where the same block, or one around it, calls the method before, on what is
    called the same and was not assigned again: ``trainer.fit()``, then ``trainer.test()``. So does one of what a
    function gives that has called the method on it.
    """
    found: set[Code] = set(first)
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
    return found.difference(first)


def follows(reach: Reach, unit: Unit, node: cst.CSTNode, first: Code, seen: frozenset[Code] = frozenset()) -> bool:
    """Whether a function has certainly run to its end before a node: in the same code, or before each call of that."""
    code = unit.names.function(node)
    if code in seen or any(_runs_through(reach, call, first) for call in _certain(unit, node)):
        return True
    sites = [] if code in reach.state.escaped else reach.sites(code)
    places = ((reach.state.calls[site].unit, site) for site in sites)
    return bool(sites) and all(follows(reach, at, site, first, seen | {code}) for at, site in places)


def may_follow(reach: Reach, unit: Unit, node: cst.CSTNode, first: Code, seen: frozenset[Code] = frozenset()) -> bool:
    """Whether a function may have run before a node: a call above it, in the same code or in that of a caller, runs
    it."""
    code, order = unit.names.function(node), unit.names.order
    if code in seen:
        return False
    above = (call for call in unit.names.calls if unit.names.function(call) is code and order(call) < order(node))
    if any(first in reach.below(called) for call in above for called in reach.called(call)):
        return True
    sites = ((reach.state.calls[site].unit, site) for site in reach.sites(code))
    return any(may_follow(reach, at, site, first, seen | {code}) for at, site in sites)


def may_precede(
    reach: Reach, earlier: cst.Call, unit: Unit, node: cst.CSTNode, seen: frozenset[Code] = frozenset()
) -> bool:
    """Whether a node may have run before another one: above it or above a call of its code, or in a call above."""
    code, order, first = unit.names.function(node), unit.names.order, reach.function_of(earlier)
    if code in seen:
        return False
    if (code is first and order(earlier) < order(node)) or (not seen and may_follow(reach, unit, node, first)):
        return True
    sites = ((reach.state.calls[site].unit, site) for site in reach.sites(code))
    return any(may_precede(reach, earlier, at, site, seen | {code}) for at, site in sites)


def _runs_through(reach: Reach, call: cst.Call, first: Code, seen: frozenset[Code] = frozenset()) -> bool:
    """Whether all that a call may run is a function, or certainly calls that before it can leave."""
    called = reach.called(call)
    return bool(called) and all(c is first or (c not in seen and _comes_to(reach, c, first, seen)) for c in called)


def _comes_to(reach: Reach, code: Code, first: Code, seen: frozenset[Code]) -> bool:
    unit = reach.unit(code)
    body = code.body if isinstance(code, cst.FunctionDef) else None
    for statement in body.body if isinstance(body, cst.IndentedBlock) else ():
        if any(_runs_through(reach, call, first, seen | {code}) for call in _made(unit, statement)):
            return True
        if any(isinstance(node, cst.Return) for node in descendants(statement)):
            return False
    return False


def _is_after(reach: Reach, unit: Unit, call: cst.Call, first: Collection[Code]) -> bool:
    """Whether a method of the object of a call has certainly run before, in the same code or where the object was
    made."""
    owner = _owner(call)
    if not owner or _has_run(reach, unit, call, first, owner):
        return bool(owner)
    bound = unit.names.scopes[unit.names.function(call)].lookup(owner)
    made = bindings_value(unit.names, bound) if bound is not None and len(bound.definitions) == 1 else ()
    makers = [maker for value in made if isinstance(value, cst.Call) for maker in reach.called(value)]
    return bool(makers) and all(_gives_ready(reach, maker, first) for maker in makers)


def _has_run(reach: Reach, unit: Unit, node: cst.CSTNode, first: Collection[Code], owner: str) -> bool:
    """Whether a method has certainly run on what is called so, in the same code before a node."""
    order, here = unit.names.order, unit.names.order(node)
    bound = unit.names.scopes[unit.names.function(node)].lookup(owner.partition(".")[0])
    for earlier in _certain(unit, node) if bound is not None else ():
        if _runs_one(reach, earlier, first) and _owner(earlier) == owner:
            if bound is not None and not any(order(earlier) < order(d) < here for d in bound.definitions):
                return True
    return False


def _runs_one(reach: Reach, call: cst.Call, first: Collection[Code]) -> bool:
    """Whether all that a call may run are some methods."""
    called = reach.called(call)
    return bool(called) and all(function in first for function in called)


def _gives_ready(reach: Reach, function: Code, first: Collection[Code]) -> bool:
    """Whether a method has run on all that a function gives."""
    unit = reach.unit(function)
    returns = unit.names.returns.get(function, ())
    given = [(node, node.value.value) for node in returns if isinstance(node.value, cst.Name)]
    return len(given) == len(returns) > 0 and all(_has_run(reach, unit, node, first, name) for node, name in given)


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
        for call in (n for small in statement.body for n in nodes_in(small, cst.Call)):
            between = itertools.takewhile(lambda node: node is not statement, unit.names.ancestors(call))
            if not any(isinstance(around, _NOT_ALWAYS) for around in between):
                yield call
