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
    inside = set(descendants(loop))
    met = reach.state.once((has_phases, training), lambda: Met(reach, (r.node for r in training.backwards)))
    trained = [node for node in inside if isinstance(node, cst.Call) and met.first(node) is not None]
    return bool(trained) and all(_in_a_phase(unit, node, inside, trained) for node in trained)


def _in_a_phase(
    unit: Unit, node: cst.CSTNode, inside: Container[cst.CSTNode], trained: Collection[cst.CSTNode]
) -> bool:
    """Whether a node of a loop runs in one of several phases: ``if phase == "train":``, ``if optimizer is not None:``.
    All turns of the loop are of one phase, and in another one nothing is trained."""
    for around in unit.names.enclosing(node, cst.If):
        if around not in inside:
            continue
        names = set(nodes_in(around.test, cst.Name))
        set_here = any(d in inside for name in names if (b := unit.names.binding(name)) for d in b.definitions)
        body, other = set(descendants(around.body)), set(descendants(around.orelse)) if around.orelse else set()
        if not set_here and not _counts_turns(around.test) and (body.isdisjoint(trained) or other.isdisjoint(trained)):
            return True
        word = around.test.attr if isinstance(around.test, cst.Attribute) else around.test
        if isinstance(word, cst.Name) and word.value == "requires_grad":
            return True
    return False


def _counts_turns(test: cst.BaseExpression) -> bool:
    """Whether a condition compares numbers: ``epoch > 0`` is a time, and no phase."""
    for node in descendants(test):
        parts = node.comparisons if isinstance(node, cst.Comparison) else ()
        if any(isinstance(p.operator, _ORDERING) or isinstance(p.comparator, cst.Integer) for p in parts):
            return True
    return False


_ORDERING = (cst.LessThan, cst.LessThanEqual, cst.GreaterThan, cst.GreaterThanEqual)
