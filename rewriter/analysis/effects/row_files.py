"""Files that loaders write for their rows: one for each row, or the same one by every process."""

from __future__ import annotations

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.effects import FileForRows, FileOfRows
from ..dataflow.values import State, Unit
from ..syntax.definitions import bindings_value, unshadowed
from ..syntax.nodes import positional
from ..syntax.walk import nodes_in
from .written import written


def same_file(state: State, unit: Unit, call: cst.Call) -> Reason | None:
    """What is said of a call that writes a file for a row, where its path does not depend on the row."""
    paths, function = written(state, call), unit.names.function(call)
    if not paths or any(_depends_on_row(unit, function, path, frozenset()) for path in paths):
        return None
    return FileOfRows(call, unit.names.module.code_for_node(paths[0]))


def for_rows_too(state: State, unit: Unit, call: cst.Call) -> Reason:
    """What is said of a call that makes a file for a row, and for other code that calls its function on all processes:
    for a row no process can wait for the others."""
    paths = written(state, call)
    return FileForRows(call, unit.names.module.code_for_node(paths[0]) if paths else "")


def _depends_on_row(unit: Unit, function: cst.CSTNode, value: cst.CSTNode, seen: frozenset[cst.CSTNode]) -> bool:
    """Whether a value depends on what a function is called with, beside its object, or on what a loop goes through."""
    for name in (node for node in nodes_in(value, cst.Name) if node in unit.names.within):
        binding = unit.names.binding(name)
        if binding is None or binding.scope.node is not function or value in seen:
            continue
        seen_here = unshadowed(unit.names, binding, name) or tuple(binding.definitions)
        values = bindings_value(unit.names, binding, seen_here)
        if len(values) < len(seen_here) and name.value != _own(unit, function):
            return True
        if any(_depends_on_row(unit, function, one, seen | {value}) for one in values):
            return True
    return False


def _own(unit: Unit, function: cst.CSTNode) -> str:
    """The name by which a method knows its object."""
    if not isinstance(function, cst.FunctionDef) or not isinstance(unit.names.within[function].node, cst.ClassDef):
        return ""
    return next((param.name.value for param in positional(function)), "")
