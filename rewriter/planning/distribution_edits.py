"""Distribution by hand, piece by piece: what takes the place of what, once the accelerator's way is known."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

import libcst as cst

from ..analysis.dataflow.values import State, Unit
from ..analysis.distributed.manual_ddp import ByHand
from ..analysis.distributed.rank_spellings import numbers
from ..analysis.syntax.walk import descendants
from ..facts.accelerator import Side
from ..facts.manual_ddp import Instead
from .accelerator_path import Way


def replaced(
    hand: ByHand, state: State, unit: Unit, way: Way, gone: Container[cst.CSTNode], here: Callable[[cst.CSTNode], bool]
) -> Iterator[Instead]:
    """What takes the place of what in one module, once the accelerator's way is known; ``gone``: what others remove."""
    home = way.home[1].node if way.home is not None and way.home[1].side is Side.INSTEAD else None
    idle = [function for function in way.idle if function in unit.names.scopes]
    within = {n for function in idle for n in descendants(function)}
    for function in idle:
        yield Instead(function, "", "this is no longer called")
    for owner, node in way.dropped:
        if owner is unit:
            yield Instead(node, "", "the accelerator knows the rank of the process")
    within.update(n for _, node in way.dropped for n in descendants(node))
    mine = within | {n for u, p in hand.pieces if u is unit and not p.keywords for n in descendants(p.node)}
    for owner, piece in hand.pieces:
        if owner is unit and piece.node is not home and piece.node not in within:
            if not piece.needed or here(piece.node):
                yield piece
    lost = {
        function_unit.names.scopes[function].bindings[name]
        for function, names in hand.workers.items()
        for function_unit in (next(u for u in state.units.values() if function in u.names.scopes),)
        for name in names
    } | way.given_up
    for piece in numbers(state, unit, lambda n: n in mine or n in gone, lost):
        if here(piece.node):
            yield piece
