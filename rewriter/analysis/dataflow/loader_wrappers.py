"""What wraps a loader and yields its batches, but is no loader: ``tqdm(loader)``, which cannot be prepared."""

from __future__ import annotations

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from ..syntax.definitions import seen_values
from ..syntax.walk import nodes_in
from .values import External, Function, State, Unit, origins


def wraps(state: State, unit: Unit, value: cst.BaseExpression, loader: Origin) -> bool:
    """
    Whether an expression can give something around a loader: the result of outside code that is given the loader, or of
    a function that returns such a result, also in a variable.
    """
    pending, seen = [(unit, value)], set[cst.CSTNode]()
    while pending:
        around, node = pending.pop()
        if node in seen or node in (loader.node, loader.place):
            continue
        seen.add(node)
        if isinstance(node, cst.Name):
            pending += [(around, given) for given in seen_values(around.names, node)]
        record = state.calls.get(node) if isinstance(node, cst.Call) else None
        if record is None or origins(record.receiver, Role.ACCELERATOR):
            continue
        if not any(loader in origins(state.values.get(arg.value)) for arg in record.node.args):
            continue
        for callee in record.callees:
            if isinstance(callee, External) and not questions.copies(callee.qualified):
                return True
            if isinstance(callee, Function):
                returned = nodes_in(callee.node, cst.Return)
                own = (n for n in returned if callee.unit.names.function(n) is callee.node)
                pending += [(callee.unit, n.value) for n in own if n.value is not None]
    return False
