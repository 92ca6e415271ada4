"""
Loops that read a loader which stays whole, in a script that moves nothing: their batches meet a model on the device.

``prepare`` moves the batches of what it takes. What is shared among no processes stays on the CPU, unless each batch is
moved as it comes.
"""

from __future__ import annotations

from collections.abc import Collection

import libcst as cst

from ...facts.module import Arrival
from ...facts.roles import Origin, Role
from ..dataflow.values import State, Unit, origins
from ..syntax.walk import descendants


def arrival(
    state: State, unit: Unit, loop: cst.CSTNode, loaders: Collection[Origin], moved: Collection[Origin]
) -> Arrival | None:
    """
    The batches of a loop that are to be moved as they come; None where the script moves them, or no name holds them.

    ``loaders``: what the loop iterates; ``moved``: the loaders whose batches the script moves by itself.
    """
    still = [loader for loader in loaders if loader not in moved]
    if not still or not isinstance(loop, cst.For) or not isinstance(loop.body, cst.IndentedBlock):
        return None
    names: dict[str, None] = {}
    for node in (loop.target, *descendants(loop.target)):
        binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
        if isinstance(node, (cst.Attribute, cst.Subscript)):
            return None
        if isinstance(node, cst.Name) and binding is not None and node.value != "_":
            held = origins(state.binding(binding), Role.BATCH)
            if any(batch.source in still for batch in held):
                names[node.value] = None
    return Arrival(loop, tuple(names)) if names else None
