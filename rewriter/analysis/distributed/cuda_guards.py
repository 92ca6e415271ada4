"""Questions for CUDA around moves that go to the accelerator's device: with another accelerator they are not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from ...facts.placement import Move, Placement
from ...facts.reasons import Reason
from ...facts.reasons.distributed import CudaOnlyMove
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import State, Unit
from ..devices.availability import refused
from ..devices.device_flags import SPEAKS
from ..devices.moves import is_host, unpinned
from ..effects.existing_guards import is_elif
from ..syntax.alike import alike
from ..syntax.definitions import bindings_value
from ..syntax.nodes import dotted
from ..syntax.walk import nodes_in
from .tracing import Tracer

_ASKING = "torch.cuda."
_DEEP = 3


class CudaGuards:
    """Answers for one module."""

    def __init__(
        self, state: State, reach: Reach, unit: Unit, placements: Sequence[Placement], on_cpu: str | None = None
    ) -> None:
        """``placements``: the moves of the module that are changed; ``on_cpu``: the condition under which the
        accelerator takes the CPU, as the module says it."""
        self.state, self.unit, self.tracer = state, unit, Tracer(state, reach)
        self.on_cpu = on_cpu
        self.moved = [p.node for p in placements if p.move is Move.RETARGET]
        self.gone = {p.statement for p in placements if p.move is Move.STATEMENT and p.statement is not None}
        changed = {p.node for p in placements if p.move in (Move.LINK, Move.RETARGET) and not p.keeps}
        removed = (call for line in self.gone for call in nodes_in(line, cst.Call))
        self.going = changed.union(call for call in removed if method_name(call) in ("cuda", "to"))
        """The moves that go, or are made in any case."""

    def opened(self) -> Iterator[cst.If | cst.IfExp | Reason]:
        """The questions that hold nothing but moves, which are made in any case then, and findings for others."""
        told: set[cst.CSTNode] = set()
        for move in self.moved:
            for guard, below in self.unit.names.outwards(move):
                if not isinstance(guard, (cst.If, cst.IfExp)) or below is not guard.body or guard in told:
                    continue
                asks, own = self._asks(self.unit, guard.test), self._is_the_accelerators(guard.test)
                if own or asks is not None:
                    told.add(guard)
                    if (own or asks) and self._only_moves(guard):
                        yield guard
                    elif not own:
                        yield _hides(self.unit, guard, move)

    def _is_the_accelerators(self, test: cst.BaseExpression) -> bool:
        """Whether a condition holds wherever the accelerator does not take the CPU: ``args.gpu``, for
        ``Accelerator(cpu=not args.gpu)``."""
        return self.on_cpu is not None and refused(self.state, self.unit, test) == self.on_cpu

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

    def closed(self) -> Iterator[cst.CSTNode]:
        """The statements that take to the CPU, where there is no CUDA, what is on the accelerator's device in any
        case: ``else: model.cpu()``, where ``model.cuda()`` goes."""
        for guard in dict.fromkeys(g for gone in self.gone for g in self._around(gone)):
            lines = [] if is_elif(self.unit, guard) else _lines(guard.body)
            other = _lines(guard.orelse.body) if isinstance(guard.orelse, cst.Else) else []
            asks = bool(other and lines) and (
                self._asks(self.unit, guard.test) or self._is_the_accelerators(guard.test)
            )
            if asks and all(line in self.gone for line in lines):
                moved = [m for line in lines for m in nodes_in(line, cst.Call) if m in self.going]
                if all(self._to_host(line, moved) for line in other):
                    yield from other

    def _around(self, line: cst.CSTNode) -> Iterator[cst.If]:
        """The question whose first branch holds a line."""
        block = self.unit.names.parents.get(line)
        guard = self.unit.names.parents.get(block) if block is not None else None
        if isinstance(guard, cst.If) and guard.body is block:
            yield guard

    def _to_host(self, line: cst.CSTNode, moved: Sequence[cst.Call]) -> bool:
        """Whether a line takes to the CPU what a move of the other branch moves, and does nothing else."""
        small = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
        value = small.value if isinstance(small, (cst.Expr, cst.Assign)) else None
        kept = _on_host(value) if value is not None else None
        if isinstance(small, cst.Assign) and not (
            len(small.targets) == 1 and kept is not None and small.targets[0].target.deep_equals(kept)
        ):
            return False
        return kept is not None and any(kept.deep_equals(_receiver(move)) for move in moved)

    def _only_moves(self, guard: cst.If | cst.IfExp) -> bool:
        """Whether a question decides about moves, and nothing else."""
        if isinstance(guard, cst.IfExp):
            return alike(guard.body, guard.orelse, self._unmoved)
        if is_elif(self.unit, guard) or (isinstance(guard.body, cst.IndentedBlock) and _comments(guard.body.footer)):
            return False
        lines = [line for line in _lines(guard.body) if line not in self.gone]
        other = _lines(guard.orelse.body) if isinstance(guard.orelse, cst.Else) else []
        if not lines or (guard.orelse is not None and not other):
            return False
        if len(lines) == len(other) and all(alike(*pair, self._unmoved) for pair in zip(lines, other, strict=True)):
            return True
        moved = [m for line in _lines(guard.body) for m in nodes_in(line, cst.Call) if m in self.going]
        lines = [line for line in lines if not all(map(self._moves_itself, _smalls(line)))]
        other = [line for line in other if not self._to_host(line, moved)]
        return len(lines) == len(other) and all(alike(*pair, self._unmoved) for pair in zip(lines, other, strict=True))

    def _moves_itself(self, small: cst.CSTNode) -> bool:
        """Whether a statement only moves: ``x, y = x.cuda(), y.cuda()``, ``net.cuda()``."""
        if small in self.gone:
            return True
        if isinstance(small, cst.Expr):
            return small.value in self.moved
        if not isinstance(small, cst.Assign) or len(small.targets) != 1:
            return False
        target = small.targets[0].target
        return not alike(target, small.value) and alike(target, small.value, self._unmoved)

    def _unmoved(self, node: cst.CSTNode) -> cst.CSTNode:
        """``x`` for ``x.cuda()``, which goes or is made in any case, and for ``x.cpu()`` beside it."""
        while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            plain = all(arg.keyword is not None and arg.keyword.value == "non_blocking" for arg in node.args[1:])
            kept = unpinned(node.func.value) if node in self.going and plain else _on_host(node)
            if kept is None:
                break
            node = kept
        return node


def _lines(block: cst.BaseSuite) -> list[cst.CSTNode]:
    return list(block.body)


def _smalls(line: cst.CSTNode) -> list[cst.CSTNode]:
    return list(line.body) if isinstance(line, cst.SimpleStatementLine) else [line]


def _receiver(move: cst.Call) -> cst.BaseExpression:
    assert isinstance(move.func, cst.Attribute)
    return unpinned(move.func.value)


def _on_host(node: cst.CSTNode) -> cst.BaseExpression | None:
    """``x`` of ``x.cpu()`` and of ``x.to("cpu")``; None for anything else."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return None
    if node.func.attr.value == "cpu" and not node.args:
        return node.func.value
    to = node.func.attr.value == "to" and len(node.args) == 1
    return node.func.value if to and is_host(node.args[0].value) else None


def _comments(lines: Sequence[cst.EmptyLine]) -> bool:
    return any(line.comment is not None for line in lines)


def _hides(unit: Unit, guard: cst.If | cst.IfExp, move: cst.CSTNode) -> Reason:
    test, moved = (unit.names.one_line(node) for node in (guard.test, move))
    return CudaOnlyMove(move, test, moved)
