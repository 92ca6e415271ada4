"""Questions for CUDA around moves that go to the accelerator's device: with another accelerator they are not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from ...facts.placement import Move, Placement
from ...facts.reasons import Reason
from ...facts.reasons.distributed import CudaOnlyMove
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.values import State, Unit
from ..devices.device_flags import SPEAKS
from ..devices.moves import unpinned
from ..effects.existing_guards import is_elif
from ..syntax.definitions import bindings_value
from ..syntax.nodes import dotted
from ..syntax.walk import descendants
from .tracing import Tracer

_ASKING = "torch.cuda."
_DEEP = 3


class CudaGuards:
    """Answers for one module."""

    def __init__(self, state: State, reach: Reach, unit: Unit, placements: Sequence[Placement]) -> None:
        """``placements``: the moves of the module that are changed."""
        self.state, self.unit, self.tracer = state, unit, Tracer(state, reach)
        self.moved = [p.node for p in placements if p.move is Move.RETARGET]
        self.gone = {p.statement for p in placements if p.move is Move.STATEMENT}

    def opened(self) -> Iterator[cst.If | cst.IfExp | Reason]:
        """The questions that hold nothing but moves, which are made in any case then, and findings for others."""
        told: set[cst.CSTNode] = set()
        for move in self.moved:
            around = self.unit.names.enclosing(move, cst.If, cst.IfExp)
            for guard in (g for g in around if isinstance(g, (cst.If, cst.IfExp)) and g not in told):
                asks = self._asks(self.unit, guard.test)
                if asks is not None and move in set(descendants(guard.body)):
                    told.add(guard)
                    yield guard if asks and self._only_moves(guard) else _hides(self.unit, guard, move)

    def _asks(self, unit: Unit, test: cst.CSTNode, depth: int = 0) -> bool | None:
        """Whether a condition asks for CUDA and else for nothing but what device the user wants; None where it does not
        ask for CUDA."""
        if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
            sides = [(side, self._asks(unit, side, depth)) for side in (test.left, test.right)]
            if all(asked is None for _, asked in sides):
                return None
            return all(self._speaks(unit, side) if asked is None else asked for side, asked in sides)
        if isinstance(test, cst.Comparison):
            return self._asks(unit, test.left, depth)
        if isinstance(test, cst.IfExp):
            flag = dotted(test.body) == "True" and dotted(test.orelse) == "False"
            return self._asks(unit, test.test, depth) if flag else None
        if isinstance(test, cst.Call):
            asks = test in self.state.calls and outside_name(self.state.calls[test]).startswith(_ASKING)
            return True if asks else None
        if depth < _DEEP and isinstance(test, (cst.Name, cst.Attribute)):
            told = {self._asks(at, value, depth + 1) for at, value in self._given(unit, test)}
            return None if not told or None in told else False not in told
        return None

    def _given(self, unit: Unit, flag: cst.Name | cst.Attribute) -> list[tuple[Unit, cst.CSTNode]]:
        """What the program gives a flag."""
        binding = unit.names.binding(flag) if isinstance(flag, cst.Name) else None
        values = bindings_value(unit.names, binding) if binding is not None else []
        if binding is not None and values and len(values) == len(binding.definitions):
            return [(unit, value) for value in values]
        found = [source for source in self.tracer.sources(unit, flag) if source.node is not flag]
        return [(source.unit, source.node) for source in found] if all(s.known for s in found) else []

    def _speaks(self, unit: Unit, node: cst.CSTNode) -> bool:
        return SPEAKS.search(unit.names.module.code_for_node(node)) is not None

    # What is inside ---------------------------------------------------------------------------------------------------

    def _only_moves(self, guard: cst.If | cst.IfExp) -> bool:
        """Whether a question decides about moves, and nothing else."""
        if isinstance(guard, cst.IfExp):
            moved = _moved(guard.body, self.moved)
            return moved is not None and moved.deep_equals(guard.orelse)
        if is_elif(self.unit, guard) or (isinstance(guard.body, cst.IndentedBlock) and _comments(guard.body.footer)):
            return False
        pairs = [pair for line in guard.body.body for pair in self._pairs(line)]
        if not pairs or any(moved is None for _, moved in pairs):
            return False
        if guard.orelse is None:
            return all(moved is not None and moved.deep_equals(target) for target, moved in pairs)
        other = guard.orelse.body.body if isinstance(guard.orelse, cst.Else) else ()
        plain = [pair for line in other for pair in self._pairs(line, plain=True)]
        same = len(pairs) == len(plain) and len(other) == len(guard.body.body)
        return same and all(
            target.deep_equals(name) and moved is not None and value is not None and moved.deep_equals(value)
            for (target, moved), (name, value) in zip(pairs, plain, strict=True)
        )

    def _pairs(
        self, line: cst.CSTNode, *, plain: bool = False
    ) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression | None]]:
        """What a line assigns, and for each what is moved; None where something else is done. ``plain``: nothing is
        moved there."""
        smalls = line.body if isinstance(line, cst.SimpleStatementLine) else [line]
        for small in smalls if line not in self.gone else ():
            if small in self.gone:
                continue
            if not isinstance(small, cst.Assign) or len(small.targets) != 1:
                yield cst.Name("_"), None
                continue
            target, value = small.targets[0].target, small.value
            parts: list[tuple[cst.BaseExpression, cst.BaseExpression]] = [(target, value)]
            if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
                parts = [(t.value, v.value) for t, v in zip(target.elements, value.elements, strict=False)]
            for name, each in parts:
                yield name, each if plain else _moved(each, self.moved)


def _moved(value: cst.CSTNode, moves: Sequence[cst.CSTNode]) -> cst.BaseExpression | None:
    """What a move moves; None for anything else."""
    if isinstance(value, cst.Call) and value in moves and isinstance(value.func, cst.Attribute):
        return unpinned(value.func.value)
    return None


def _comments(lines: Sequence[cst.EmptyLine]) -> bool:
    return any(line.comment is not None for line in lines)


def _hides(unit: Unit, guard: cst.If | cst.IfExp, move: cst.CSTNode) -> Reason:
    test, moved = (unit.names.one_line(node) for node in (guard.test, move))
    return CudaOnlyMove(move, test, moved)
