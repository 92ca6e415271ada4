"""
What all processes must do together, under a condition on the rank: ``rank = int(os.environ["RANK"])``, then
``if rank == 0: evaluate(model)``.

An evaluation that one process alone runs stays as it is, with the whole set. A training step, a loop over a prepared
loader or a gather cannot: the other processes do not come, and those that came wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.distributed import MetApart, UnmovedBatches
from ..dataflow.code_place import CodePlace
from ..dataflow.values import Unit
from ..syntax.names import LONGEST
from .guards import Guards


def condition(guards: Guards, unit: Unit, node: cst.CSTNode) -> CodePlace | None:
    """The statement that asks for the rank, and lets only some processes come to a node."""
    for place in (*guards.around(unit, node), *guards.called_apart(unit, node)):
        test = _test(place.node)
        if test is not None and guards.asks(place.unit, test):
            return place
    return None


def met_apart(guards: Guards, joint: Iterable[tuple[Unit, cst.CSTNode]]) -> Iterator[tuple[Unit, Reason]]:
    """For each such condition around something that all processes must do, a finding."""
    told: set[cst.CSTNode] = set()
    for unit, node in joint:
        place = condition(guards, unit, node)
        if place is None or place.node in told:
            continue
        told.add(place.node)
        yield (
            place.unit,
            MetApart(place.node, said(place), _text(unit, node)),
        )


def left_on_cpu(unit: Unit, loop: cst.For, because: str) -> Reason:
    """What is said of a loop that reads a loader which stays whole, where nothing moves its batches."""
    return UnmovedBatches(loop, _text(unit, loop.iter), because)


def said(place: CodePlace) -> str:
    """The condition that a statement asks, in words."""
    test = _test(place.node)
    return _text(place.unit, test if test is not None else place.node)


def _test(node: cst.CSTNode) -> cst.BaseExpression | None:
    if isinstance(node, (cst.If, cst.IfExp, cst.While)):
        return node.test
    return node.left if isinstance(node, cst.BooleanOperation) else None


def _text(unit: Unit, node: cst.CSTNode) -> str:
    """The first line of a piece of code, where it is short enough for a sentence."""
    code = unit.names.module.code_for_node
    if isinstance(node, cst.For):
        text = f"for {code(node.target)} in {code(node.iter)}"
    else:
        text = code(node).strip().split("\n")[0].strip().removesuffix(":")
    return f"`{text}`" if len(text) <= LONGEST else "a piece of code"
