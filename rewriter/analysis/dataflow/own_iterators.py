"""Loaders of classes of the script that iterate in a way of their own."""

from __future__ import annotations

import libcst as cst

from ...facts.roles import Origin, Role
from ...facts.torch_api import questions
from .call_graph import Reach
from .callees import method_name
from .code_place import CodePlace
from .values import External, Klass, State

_DRAWS = frozenset({"__iter__", "_get_iterator"})


def own_iterator(reach: Reach, loader: Origin) -> CodePlace | None:
    """
    The ``__iter__`` of a loader's class, if nothing that it runs asks torch's loader for batches.

    Such a loader reads its samplers by hand, or an iterator that was made with the loader: what ``prepare`` puts
    underneath is never reached.
    """
    klass = reach.state.klass.get(loader)
    method = klass.method("__iter__") if klass is not None else None
    if method is None:
        return None
    for code in reach.below(method.node):
        for node in reach.own(code):
            if isinstance(node, cst.Call) and _draws(reach.state, node):
                return None
    return CodePlace(method.unit, method.node)


def _draws(state: State, call: cst.Call) -> bool:
    """``super().__iter__()``, ``DataLoader.__iter__(self)``."""
    func = call.func
    return isinstance(func, cst.Attribute) and func.attr.value in _DRAWS and _is_torchs(state, func.value)


def _is_torchs(state: State, node: cst.BaseExpression) -> bool:
    """Whether an expression is a loader as its base classes see it, or a class of loaders."""
    if isinstance(node, cst.Call) and method_name(node) == "super":
        return True
    held = state.values.get(node)
    return any(
        (isinstance(t, External) and questions.constructed(t.qualified) is Role.LOADER)
        or (isinstance(t, Klass) and t.role is Role.LOADER)
        for t in (held.things if held is not None else ())
    )
