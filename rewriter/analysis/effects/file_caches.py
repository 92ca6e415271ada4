"""
Files that are made where they are missing: a vocabulary, a cache of features, an index.

One process makes them, the others come when they are there. A guard on the write alone would let the others pass while
the file is missing, or half written.
"""

from __future__ import annotations

import libcst as cst

from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.values import State, Unit, origins
from ..syntax.walk import descendants
from .existing_guards import Together, in_turn, is_elif
from .handles import asks_existence


class Makings:
    """Finds, for a write, the question whether its file is there."""

    def __init__(self, state: State, unit: Unit, reach: Reach, together: Together) -> None:
        self.state, self.unit, self.reach, self.together = state, unit, reach, together

    def of(self, call: cst.Call) -> cst.If | None:
        """The ``if`` that asks for a file that a call below it writes; None where all must run it together."""
        if self.reach.batch_loops(call, self.unit):
            return None
        found: cst.If | None = None
        for around in self.unit.names.ancestors(call):
            if isinstance(around, (cst.FunctionDef, cst.ClassDef)):
                break
            if isinstance(around, cst.If) and not is_elif(self.unit, around) and self._asks_for(around, call):
                found = around
        return None if found is None or self.together(self.unit, found) else found

    def holds_state(self, call: cst.Call) -> bool:
        """Whether a ``torch.save`` writes the state of what trains, which all processes collect together."""
        parts = (n for arg in call.args[:1] for n in descendants(arg))
        return any(origins(self.state.values.get(part), Role.STATE, Role.MODEL, Role.OPTIMIZER) for part in parts)

    def is_done(self, call: cst.Call) -> bool:
        """Whether the processes come to it one after the other already."""
        return in_turn(self.state, self.unit, call)

    def _asks_for(self, question: cst.If, call: cst.Call) -> bool:
        """Whether a check is for a path that is in the write, or in the ``with`` that opens it."""
        paths = {
            self.unit.names.module.code_for_node(part)
            for node in descendants(question.test)
            if isinstance(node, cst.Call) and asks_existence(node)
            for part in _asked(node)
        }
        wholes: list[cst.CSTNode] = [call]
        for around in self.unit.names.enclosing(call, cst.With):
            wholes += [item.item for item in getattr(around, "items", ())]
        kinds = (cst.Name, cst.Attribute, cst.Call, cst.SimpleString)
        parts = (n for whole in wholes for n in descendants(whole) if isinstance(n, kinds))
        return (
            bool(paths)
            and _is_missing(question, call)
            and any(self.unit.names.module.code_for_node(part) in paths for part in parts)
        )


def _asked(call: cst.Call) -> list[cst.BaseExpression]:
    """The path in ``os.path.exists(path)`` or ``path.exists()``."""
    if call.args:
        return [call.args[0].value]
    return [call.func.value] if isinstance(call.func, cst.Attribute) else []


def _is_missing(question: cst.If, call: cst.Call) -> bool:
    """Whether a call is in the branch that is taken if the file is missing."""
    denials = (n for n in descendants(question.test) if isinstance(n, cst.UnaryOperation))
    nots = (n for n in denials if isinstance(n.operator, cst.Not))
    denied = any(asks_existence(part) for n in nots for part in descendants(n))
    branch = question.body if denied else question.orelse
    return branch is not None and any(node is call for node in descendants(branch))
