"""What the emitted program sets can be set: no field of a named tuple, no property without a setter."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.fixed_attributes import fixed_attribute
from ..analysis.syntax.definitions import is_target
from .program import EmittedProgram
from .violation import Violation


def settable(program: EmittedProgram) -> Iterator[Violation]:
    """The assignments to attributes that take no new value."""
    for unit in program.reach.units:
        for node in unit.names.every(cst.Attribute):
            if is_target(unit.names, node):
                reason = fixed_attribute(program.state, node)
                if reason and unit.names.function(node) in program.reach.reachable:
                    text = unit.names.module.code_for_node(node)
                    yield Violation("attribute-fixed", CodePlace(unit, node), f"`{text}` cannot be set: {reason}")
