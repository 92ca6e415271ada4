"""Which expressions depend on the rank: as a condition, or anywhere in their computation."""

from __future__ import annotations

import libcst as cst

from ...facts.roles import Role
from ...facts.torch_api import process_calls
from ..dataflow import ranks
from ..dataflow.callees import method_name
from ..dataflow.values import Unit, origins
from ..syntax.nodes import asks_whether_set
from ..syntax.walk import children, descendants
from .tracing import Tracer

USUAL_NAMES = frozenset(
    "rank local_rank global_rank world_rank ddp_rank ddp_local_rank dist_rank node_rank is_main is_master "
    "is_main_process is_local_main_process is_last_process is_global_zero is_rank_zero rank_zero "
    "master_process main_process is_rank0 "
    "is_root process_index local_process_index is_primary is_chief rank_zero_only is_local_main is_local_master "
    "get_rank get_local_rank get_node_local_rank".split()
)
"""Usual names for the rank of a process, or for the check whether it is the first: of a program that is known to be
distributed. Elsewhere the rank of something else may be meant, of a player or a matrix."""
_OF_ACCELERATOR = frozenset(
    "is_main_process is_local_main_process is_last_process process_index local_process_index".split()
)
_NUMBERS = frozenset({ranks.RANK, ranks.LOCAL_RANK, ranks.MULTIPLE})
_PURE = frozenset({"int", "bool", "str", "float", "getenv", "get"})
_STEPS = 500
"""The search stops after this many nodes."""


class RankQuestions:
    """
    Answers, with a memory, whether an expression depends on the rank.

    Args:
        tracer: follows values back.
        names: what variables and attributes are called that hold a rank, wherever their values come from.
    """

    def __init__(self, tracer: Tracer, names: frozenset[str] = frozenset()) -> None:
        self.tracer, self._names = tracer, names
        self._state = tracer.state
        self._asked: dict[cst.CSTNode, bool] = {}
        self._mentioned: dict[cst.CSTNode, bool] = {}

    def asks(self, unit: Unit, expression: cst.CSTNode) -> bool:
        """Whether a condition checks which process this is, not only whether there are several."""
        if expression not in self._asked:
            self._asked[expression] = False  # a cycle adds nothing
            self._asked[expression] = self._asks(unit, expression)
        return self._asked[expression]

    def _asks(self, unit: Unit, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Comparison):
            sides = [node.left, *(target.comparator for target in node.comparisons)]
            if asks_whether_set(node):
                return False
            return any(self.asks(unit, side) for side in sides)
        if self.is_number(node):
            return True
        if isinstance(node, (cst.Name, cst.Attribute)):
            return self._named(unit, node)
        if isinstance(node, cst.Call):
            return self._called(unit, node)
        if isinstance(node, (cst.BooleanOperation, cst.BinaryOperation, cst.UnaryOperation, cst.IfExp)):
            return any(self.asks(unit, child) for child in children(node) if isinstance(child, cst.BaseExpression))
        return False

    def is_number(self, node: cst.CSTNode) -> bool:
        """Whether an expression is known to be the number of a process, or computed from it."""
        held = origins(self._state.values.get(node), Role.PLACE)
        return any(origin.qualified in _NUMBERS for origin in held)

    def _named(self, unit: Unit, node: cst.Name | cst.Attribute) -> bool:
        word = node.attr.value if isinstance(node, cst.Attribute) else node.value
        if word in self._names:
            return True
        if isinstance(node, cst.Attribute):
            return word in _OF_ACCELERATOR or any(
                self.asks(u, value) for u, value in self.tracer.attributes(unit, node)
            )
        return any(
            self.asks(source.unit, source.node)
            for source in self.tracer.sources(unit, node)
            if source.node is not node and source.part is None and source.known
        )

    def _called(self, unit: Unit, call: cst.Call) -> bool:
        name = method_name(call)
        if name in self._names:
            return True
        if name in process_calls.joining_names():
            return False
        if name in _PURE:
            return any(self.asks(unit, arg.value) for arg in call.args)
        sources = self.tracer.sources(unit, call)
        return any(self.asks(s.unit, s.node) for s in sources if s.node is not call and s.part is None)

    def mentions(self, unit: Unit, expression: cst.CSTNode) -> bool:
        """Whether the rank is anywhere in what an expression is computed from."""
        if expression not in self._mentioned:
            self._mentioned[expression] = self._mentions(unit, expression)
        return self._mentioned[expression]

    def _mentions(self, unit: Unit, expression: cst.CSTNode) -> bool:
        seen: set[cst.CSTNode] = set()
        pending = [(unit, expression)]
        while pending and len(seen) < _STEPS:
            unit, node = pending.pop(0)
            for part in descendants(node):
                if part in seen:
                    continue
                seen.add(part)
                if isinstance(part, cst.Arg) and part.keyword is not None and isinstance(part.value, cst.Integer):
                    seen.add(part.keyword)  # ``rank=0`` is that of no process
                if self.is_number(part):
                    return True
                if isinstance(part, (cst.Name, cst.Attribute)):
                    word = part.attr.value if isinstance(part, cst.Attribute) else part.value
                    if word in self._names or (word in _OF_ACCELERATOR and isinstance(part, cst.Attribute)):
                        return True
                    pending += [(s.unit, s.node) for s in self.tracer.sources(unit, part) if s.node is not part]
        return False
