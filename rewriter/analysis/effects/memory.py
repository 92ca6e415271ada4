"""What is written into memory, or a temporary file: each process has its own, and reads that alone."""

from __future__ import annotations

import libcst as cst

from ...facts.torch_api import surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.values import State, Unit, Unknown
from .temporary_files import own_file
from .written import written


def into_memory(state: State, unit: Unit, reach: Reach, call: cst.Call) -> bool:
    """Whether a call writes to a buffer or a temporary file: what it is given, or the object of its method."""
    given = written(state, call)
    if any(_is_buffer(state, unit, reach, value, frozenset()) for value in given):
        return True
    return any(own_file(reach, unit, value) for value in given)


def _is_buffer(state: State, unit: Unit, reach: Reach, node: cst.BaseExpression, seen: frozenset[cst.CSTNode]) -> bool:
    """Whether an expression is a buffer, whatever calls a function that has it as a parameter."""
    slot = state.values.get(node)
    things = slot.things if slot is not None else ()
    if not things or not all(isinstance(t, Unknown) and surroundings.in_memory(t.qualified) for t in things):
        return False
    binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
    definitions = binding.definitions if binding is not None else ()
    if binding is None or node in seen or not any(_is_parameter(unit, definition) for definition in definitions):
        return True
    return all(_is_buffer(state, u, reach, value, seen | {node}) for u, value in reach.given(binding))


def _is_parameter(unit: Unit, definition: cst.CSTNode) -> bool:
    return isinstance(definition, cst.Param) or isinstance(unit.names.parents.get(definition), cst.Param)
