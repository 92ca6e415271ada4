"""Functions of the script that choose its device: what they do beside, which must not be lost with their calls."""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ..dataflow.values import Function, State
from ..syntax.nodes import is_docstring
from ..syntax.walk import nodes_in

_QUIET = (cst.Return, cst.Pass, cst.Import, cst.ImportFrom, cst.Global, cst.Nonlocal)


def does_more(state: State, value: cst.BaseExpression, removed: Container[cst.CSTNode] = ()) -> bool:
    """Whether a value is got by a call of a function that does more than choose: it seeds, prints, sets or checks.
    ``removed``: statements that it loses."""
    return isinstance(value, cst.Call) and value in state.calls and _acts(state, value, frozenset(), removed)


def assigned(statement: cst.CSTNode) -> cst.BaseExpression | None:
    """What a statement assigns to a single target."""
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 else None
    if isinstance(small, cst.Assign):
        return small.value if len(small.targets) == 1 else None
    return small.value if isinstance(small, cst.AnnAssign) else None


def _acts(state: State, call: cst.Call, seen: frozenset[cst.CSTNode], removed: Container[cst.CSTNode]) -> bool:
    """Whether a call runs code of the script that does anything that outlives it."""
    functions = [t for t in state.calls[call].callees if isinstance(t, Function) and t.node not in seen]
    return any(
        not _is_quiet(small) or any(_acts(state, one, seen | {function.node}, removed) for one in _calls(state, small))
        for function in functions
        if isinstance(function.node, cst.FunctionDef)
        for small in _smalls(function.node.body, removed)
    )


def _calls(state: State, node: cst.CSTNode) -> Iterator[cst.Call]:
    return (n for n in nodes_in(node, cst.Call) if n in state.calls)


def _smalls(block: cst.BaseSuite, removed: Container[cst.CSTNode]) -> Iterator[cst.CSTNode]:
    """The statements of a function; a compound one that is no ``if`` as a whole, the condition of an ``if`` too."""
    for statement in block.body:
        if is_docstring(statement) or statement in removed:
            continue
        if not isinstance(statement, cst.If):
            yield from statement.body if isinstance(statement, cst.SimpleStatementLine) else (statement,)
            continue
        branch: cst.If | cst.Else | None = statement
        while branch is not None:
            if isinstance(branch, cst.If):
                yield cst.Return(branch.test)
            yield from _smalls(branch.body, removed)
            branch = branch.orelse if isinstance(branch, cst.If) else None


def _is_quiet(small: cst.CSTNode) -> bool:
    """Whether a statement changes nothing but variables of its function."""
    if isinstance(small, cst.Assign):
        return all(isinstance(target.target, cst.Name) for target in small.targets)
    if isinstance(small, cst.AnnAssign):
        return isinstance(small.target, cst.Name)
    return isinstance(small, _QUIET)
