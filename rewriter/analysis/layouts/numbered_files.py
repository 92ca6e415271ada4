"""
Files of an evaluation that are named by the batches so far: ``f"{i * loader.batch_size + k}.png"``.

Joined batches are fewer and larger. Such a name would be that of several rows, and the file of one be written over.
"""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from ...facts.roles import Role
from ...facts.torch_api import surroundings
from ..dataflow.callees import made_names, method_name, outside_name
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import nodes_behind
from ..syntax.walk import nodes_in
from .batch_numbers import counters
from .batch_shapes import is_row_count


def numbered_file(state: State, unit: Unit, loop: cst.For, tail: Iterable[cst.CSTNode]) -> cst.BinaryOperation | None:
    """The product of the number of the batch and a size in what names a file that statements of a loop write; None
    where there is none. The number of rows that a batch has is that of the joined ones."""
    numbers = set(counters(unit, loop))
    for call in (each for statement in tail if numbers for each in nodes_in(statement, cst.Call)):
        for given in (arg.value for arg in call.args) if _writes(state, call) else ():
            for part in nodes_behind(unit.names, given):
                if isinstance(part, cst.BinaryOperation) and isinstance(part.operator, cst.Multiply):
                    sides = (part.left, part.right)
                    counted = [isinstance(s, cst.Name) and unit.names.binding(s) in numbers for s in sides]
                    if any(counted) and not any(map(is_row_count, sides)):
                        return part
    return None


def _writes(state: State, call: cst.Call) -> bool:
    record = state.calls.get(call)
    if record is None:
        return False
    if method_name(call) == "save" and origins(record.receiver, Role.ACCELERATOR):
        return True
    return any(map(surroundings.writes, (outside_name(record), *made_names(record))))
