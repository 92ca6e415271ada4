"""Temporary files: each process has made its own, under a name that no other process knows."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.effects import LeftFile
from ...facts.torch_api import surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.values import Unit
from ..syntax.definitions import bindings_value, entered_values
from ..syntax.nodes import keyword
from .written import removes, written

_SAME_FILE = frozenset({"pathlib.Path", "builtins.str", "os.fspath", "os.fdopen"})


def own_file(reach: Reach, unit: Unit, node: cst.BaseExpression) -> list[cst.Call]:
    """The calls that make the temporary file which an expression names, or is; empty where it may be another file."""
    return _made(reach, unit, node, frozenset())


def left_files(reach: Reach, unit: Unit) -> Iterator[Reason]:
    """The temporary files of a module that stay when the script ends: as many as there are processes."""
    calls = [call for call in unit.names.calls if unit.names.function(call) in reach.reachable]
    found = [call for call in calls if _stays(reach, call)]
    if found:
        removed = reach.state.once(left_files, lambda: set(_removed(reach)))
        yield from (LeftFile(call) for call in found if call not in removed)


def _made(reach: Reach, unit: Unit, node: cst.BaseExpression, seen: frozenset[cst.CSTNode]) -> list[cst.Call]:
    if isinstance(node, cst.Attribute) and node.attr.value == "name":
        return _made(reach, unit, node.value, seen)
    if isinstance(node, cst.Call):
        record = reach.state.calls.get(node)
        name = outside_name(record) if record is not None else ""
        if surroundings.temporary_file(name):
            return [node]
        same = name in _SAME_FILE or surroundings.opens(name)
        return _made(reach, unit, node.args[0].value, seen) if same and node.args else []
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    if binding is None or node in seen:
        return []
    values = [(unit, value) for value in bindings_value(unit.names, binding)]
    values += [(unit, value) for value in entered_values(unit.names, binding)]
    if any(isinstance(definition, cst.Param) for definition in binding.definitions):
        values += reach.given(binding)
    found = [_made(reach, home, value, seen | {node}) for home, value in values]
    return [call for calls in found for call in calls] if all(found) else []


def _stays(reach: Reach, call: cst.Call) -> bool:
    """Whether a call makes a temporary file that stays until a call removes it."""
    record = reach.state.calls.get(call)
    name = outside_name(record) if record is not None else ""
    kept = keyword(call, "delete")
    asked = isinstance(kept, cst.Name) and kept.value == "False"
    return surroundings.temporary_file(name) and (asked or name == "tempfile.mkstemp")


def _removed(reach: Reach) -> Iterator[cst.Call]:
    """The calls that make a temporary file which the script takes away again."""
    for record in reach.state.calls.values():
        if removes(record):
            for path in written(reach.state, record.node):
                yield from own_file(reach, record.unit, path)
