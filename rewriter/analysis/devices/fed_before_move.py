"""
What a model is given while the script still has it on the CPU: ``print(model(data[0][0]))``, and then
``model.to(device)``.

``prepare`` moves the model with everything else, which may be before such a call. What the call gives it was on the CPU
with it, and has to follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from ...facts.placement import Move, Placement
from ...facts.roles import SHARES, Origin
from ..dataflow.call_graph import Reach
from ..dataflow.values import CallRecord, State, Unit, origins
from ..syntax.definitions import unshadowed
from ..training.training import Training, whole
from .host_tensors import PLAIN
from .moves import Mover


def fed_before_move(
    mover: Mover, reach: Reach, training: Training, early: Callable[[cst.Call, Origin], bool]
) -> Iterator[tuple[Unit, Placement]]:
    """What follows a model to its device, because the model is there since ``prepare``; ``early``: whether a call of a
    model comes before that."""
    state = mover.state
    moving: dict[Origin, list[CallRecord]] = {}
    for move, record in state.calls.items():
        for moved in origins(record.receiver) if mover.is_move(move) else ():
            moving.setdefault(moved, []).append(record)
    for call, part in training.forwards.items():
        unit, model = state.calls[call].unit, whole(state, part)
        if model not in mover.prepared or unit.names.function(call) not in reach.reachable or early(call, model):
            continue
        moves = moving.get(model, [])
        if mover.inside_model(unit, call) or not moves or not _comes_first(reach, unit, call, moves, frozenset()):
            continue
        for index, argument in enumerate(call.args):
            value = argument.value
            tensor = index == 0 or mover.made_on_host.new_tensor(unit, value)  # a flag, a number stay as they are
            if isinstance(value, PLAIN) and tensor and not argument.star and not yielded(state, unit, value):
                because = "the script had the model on the CPU here, and prepare has moved it"
                yield unit, Placement(value, Move.PLACE, because)


def _comes_first(
    reach: Reach, unit: Unit, call: cst.Call, moves: list[CallRecord], seen: frozenset[cst.CSTNode]
) -> bool:
    """Whether some way to a call comes before all moves, which are in the same code."""
    names, code = unit.names, unit.names.function(call)
    if all(r.unit is unit and names.function(r.node) is code for r in moves):
        return all(names.order(r.node) > names.end(call) for r in moves)
    sites = reach.sites(code) if code not in seen else ()
    return any(_comes_first(reach, reach.state.calls[s].unit, s, moves, seen | {code}) for s in sites)


def yielded(state: State, unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether a loader yields what an expression has there, or a model computes it: nothing that the same name has had
    elsewhere."""
    binding = unit.names.binding(value) if isinstance(value, cst.Name) else None
    definitions = unshadowed(unit.names, binding, value) if binding is not None else ()
    if definitions and all(isinstance(definition, cst.Name) for definition in definitions):
        return any(origins(state.slot(definition), *SHARES) for definition in definitions)
    return bool(origins(state.values.get(value), *SHARES))
