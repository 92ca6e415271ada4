"""
Errors after which a script goes on: an ``except`` that skips a batch, a ``contextlib.suppress`` around a step.

An error of memory, or of one bad batch, comes on one process. The others have none, take the step and wait for it. What
raises the error again, or ends the process with a status that the launcher notices, ends all.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.decisions import SwallowedError
from ...facts.roles import Role
from ...facts.torch_api import surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.drawn_batches import only_draws
from ..dataflow.raised import comes_alike, met_alone
from ..dataflow.values import State, Unit, origins
from ..syntax.leaving import exits_quietly, quiet_exit
from ..syntax.walk import nodes_in
from .decisions import Joint, jumps, leaves

Handler = cst.ExceptHandler | cst.ExceptStarHandler


def swallowed_errors(unit: Unit, joint: Joint) -> Iterator[Reason]:
    """The handlers of a module by which one process goes on after an error while the others work together."""
    for node in unit.names.every(cst.Try, cst.TryStar, cst.With):
        if unit.names.function(node) not in joint.reach.reachable:
            continue
        if isinstance(node, (cst.Try, cst.TryStar)):
            for handler in node.handlers:
                if goes_on(joint.state, handler):
                    if _parts(unit, joint, node, handler):
                        yield SwallowedError(handler, _line(unit, handler))
                    elif _opens_anew(joint.state, node, handler):
                        yield SwallowedError(handler, _line(unit, handler), at_end=True)
        elif isinstance(node, cst.With) and joint.runs(node.body) is not None:
            for item in node.items:
                if _suppresses(joint.state, item.item):
                    yield SwallowedError(item, unit.names.module.code_for_node(item.item))


def goes_on(state: State, handler: Handler) -> bool:
    """Whether a handler catches what one process may meet alone, and does not end all processes."""
    left = any(word != "consumer" for word in jumps(handler.body))  # if "memory" in str(error): continue
    return met_alone(state, handler.type) and (left or not ends_all(state, handler.body))


def _parts(unit: Unit, joint: Joint, node: cst.Try | cst.TryStar, handler: Handler) -> bool:
    """Whether all work together in what may fail; or it fails by the rows of one process, and decides what all do
    together after it."""
    if joint.runs(node.body) is not None:
        return True
    decides = leaves(unit, handler, [handler.body], joint) or joint.runs(handler.body) is not None
    if node.orelse is not None and not decides:
        decides = joint.runs(node.orelse) is not None
    return decides and joint.equality.is_local(unit, node.body)


def _opens_anew(state: State, node: cst.Try | cst.TryStar, handler: Handler) -> bool:
    """Whether a handler makes a loader anew, which is prepared there, and the script has its end in mind."""
    made = set(nodes_in(handler.body, cst.Call))
    return only_draws(state, node.body) and any(
        origin.node in made
        for record in map(state.calls.get, made)
        if record is not None
        for origin in origins(record.result, Role.LOADER)
    )


def survivals(reach: Reach, unit: Unit, node: cst.CSTNode) -> Iterator[tuple[Unit, cst.CSTNode, str]]:
    """The blocks after whose errors the script goes on, around a node or around a call of its function: the module, the
    body, and the handler as it is written."""
    pending, seen = [(unit, node)], {node}
    while pending:
        own, below = pending.pop()
        for around in own.names.enclosing(below, cst.Try, cst.TryStar, cst.With):
            if below is not around.body and around.body not in own.names.ancestors(below):
                continue  # in a handler, or after the block
            if isinstance(around, cst.With):
                items = (item.item for item in around.items if _suppresses(reach.state, item.item))
                found = [f"with {own.names.module.code_for_node(item)}" for item in items]
            else:
                found = [_line(own, handler) for handler in around.handlers if goes_on(reach.state, handler)]
            for handler in found[:1]:
                yield own, around.body, handler
        for record in reach.reached_sites(own.names.function(below)):
            if record.node not in seen:
                seen.add(record.node)
                pending.append((record.unit, record.node))


def ends_all(state: State, block: cst.CSTNode) -> bool:
    """Whether a block always ends all processes: it raises an error, or exits with a status that is one."""
    last = block.body[-1] if isinstance(block, (cst.IndentedBlock, cst.SimpleStatementSuite)) else block
    if isinstance(last, cst.If):
        branches = [last.body, last.orelse.body if isinstance(last.orelse, cst.Else) else last.orelse]
        return all(branch is not None and ends_all(state, branch) for branch in branches)
    if isinstance(last, cst.With):
        return ends_all(state, last.body)
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else last
    if isinstance(small, cst.Raise):
        return not quiet_exit(small)
    called = small.value if isinstance(small, cst.Expr) else None
    record = state.calls.get(called) if isinstance(called, cst.Call) else None
    return record is not None and surroundings.ends_process(outside_name(record)) and not exits_quietly(record.node)


def _suppresses(state: State, entered: cst.BaseExpression) -> bool:
    record = state.calls.get(entered) if isinstance(entered, cst.Call) else None
    if record is None or outside_name(record) != "contextlib.suppress":
        return False
    return any(not comes_alike(state, arg.value) for arg in record.node.args)


def _line(unit: Unit, handler: Handler) -> str:
    """``except RuntimeError``, as it is written."""
    star = "*" if isinstance(handler, cst.ExceptStarHandler) else ""
    kind = f" {unit.names.module.code_for_node(handler.type)}" if handler.type is not None else ""
    return f"except{star}{kind}"
