"""Loops that train in one phase and evaluate in another."""

from __future__ import annotations

from collections.abc import Collection, Container

import libcst as cst

from ..dataflow.call_graph import Reach
from ..dataflow.met import Met
from ..dataflow.values import Unit
from ..syntax.walk import descendants, nodes_in
from ..training.training import Training


def has_phases(reach: Reach, unit: Unit, training: Training, loop: cst.CSTNode) -> bool:
    """Whether a loop trains in one phase and evaluates in another."""
    return reach.state.once((has_phases, training, loop), lambda: _has_phases(reach, unit, training, loop))


def _has_phases(reach: Reach, unit: Unit, training: Training, loop: cst.CSTNode) -> bool:
    inside = set(descendants(loop))
    met = reach.state.once((has_phases, training), lambda: Met(reach, (r.node for r in training.backwards)))
    trained = {node: None for node in descendants(loop) if isinstance(node, cst.Call) and met.first(node) is not None}
    phases: dict[cst.If, bool] = {}

    def in_a_phase(node: cst.CSTNode) -> bool:
        for around in unit.names.enclosing(node, cst.If):
            if around in inside and around not in phases:
                phases[around] = _is_phase(unit, around, inside, trained)
            if phases.get(around):
                return True
        return False

    return bool(trained) and all(map(in_a_phase, trained))


def _is_phase(unit: Unit, node: cst.If, inside: Container[cst.CSTNode], trained: Collection[cst.CSTNode]) -> bool:
    """Whether a condition of a loop chooses one of several phases: ``if phase == "train":``, ``if optimizer is not
    None:``. All turns of the loop are of one phase, and in another one nothing is trained."""
    set_here = any(
        d in inside for name in nodes_in(node.test, cst.Name) if (b := unit.names.binding(name)) for d in b.definitions
    )
    if not set_here and not _counts_turns(node.test):
        sides = (node.body, *([node.orelse] if node.orelse is not None else []))
        if len(sides) == 1 or any(not any(part in trained for part in descendants(side)) for side in sides):
            return True
    word = node.test.attr if isinstance(node.test, cst.Attribute) else node.test
    return isinstance(word, cst.Name) and word.value == "requires_grad"


def _counts_turns(test: cst.BaseExpression) -> bool:
    """Whether a condition compares numbers: ``epoch > 0`` is a time, and no phase."""
    for node in descendants(test):
        parts = node.comparisons if isinstance(node, cst.Comparison) else ()
        if any(isinstance(p.operator, _ORDERING) or isinstance(p.comparator, cst.Integer) for p in parts):
            return True
    return False


_ORDERING = (cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual)
