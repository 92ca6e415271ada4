"""
Shapes of a training step that are tied to the size of the whole batch, where each process has its shard of the rows.

``x.view(args.batch_size, -1)`` fails there. Noise of so many rows does not: each process draws as much as one process
would, and together they train on N times as many of its rows as on those of the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.batches import TiedShape
from ...facts.roles import Origin
from ..dataflow.call_graph import Reach
from ..dataflow.constant_values import constants_of
from ..dataflow.object_fields import fields_of
from ..dataflow.values import CallRecord, Unit
from ..syntax.definitions import seen_values
from ..syntax.walk import nodes_in
from ..training.draws import drawn
from ..training.training import Training, without_gradient
from .batch_shapes import batch_sizes, numbers_in, shapes


def tied_shapes(unit: Unit, reach: Reach, training: Training) -> Iterator[Reason]:
    """Training steps that shape tensors by the size of the whole batch, of which each process has its shard."""
    for loop in training.train_loops:
        if loop in unit.names.parents and isinstance(loop, (cst.For, cst.While)):
            sizes, code = _Sizes(reach, reach.loaders(loop)), unit.names.function(loop)
            for node in reach.runs(loop.body, unit):
                record = reach.state.calls.get(node) if isinstance(node, cst.Call) else None
                if record is None or not sizes.tie(record):
                    continue
                if record.unit.names.function(node) is code or not without_gradient(record.unit, node):
                    yield TiedShape(node if record.unit is unit else _leads_to(reach, unit, loop, node))
                    return


def _leads_to(reach: Reach, unit: Unit, loop: cst.For | cst.While, node: cst.CSTNode) -> cst.CSTNode:
    """The call in a loop's own code by which it comes to code of another module."""
    own = (call for call in nodes_in(loop.body, cst.Call) if node in reach.runs(call, unit))
    return next(own, loop)


class _Sizes:
    """The size of the batches of some loaders, in whatever spelling."""

    def __init__(self, reach: Reach, loaders: Sequence[Origin]) -> None:
        self._reach, self._state = reach, reach.state
        self._spelled = batch_sizes(reach, loaders)
        self._numbers: set[object] = set()
        for loader in loaders:
            if isinstance(loader.node, cst.Call):
                unit = reach.unit_of(loader.node, reach.units[0])
                self._numbers |= constants_of(self._state).argument(unit, loader.node, "batch_size", 1) or set()
        self._numbers -= {None, 1}

    def tie(self, record: CallRecord) -> bool:
        """Whether a call makes a shape of such a size; of noise, also where the number alone is written."""
        found = drawn(record)
        noise = found is not None and found.draws in ("noise", "numbers")
        if not noise and not shapes(record.node):
            return False
        numbers = numbers_in(record.node)
        if any(self._is_size(record.unit, part, set()) for part in numbers):
            return True
        listed = next((part for part in numbers if isinstance(part, (cst.Tuple, cst.List)) and part.elements), None)
        first = listed.elements[0].value if listed is not None else next(iter(numbers), None)
        values = constants_of(self._state).of(record.unit, first) if noise and first is not None else None
        return bool(values) and values is not None and values <= self._numbers

    def _is_size(self, unit: Unit, node: cst.BaseExpression, seen: set[cst.CSTNode]) -> bool:
        """Whether an expression gives the size of a batch, or a multiple of it."""
        if node in seen:
            return False
        seen.add(node)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
            return self._is_size(unit, node.left, seen) or self._is_size(unit, node.right, seen)
        if isinstance(node, cst.Name):
            binding = unit.names.binding(node)
            if binding is not None and any(isinstance(d, cst.Param) for d in binding.definitions):
                same = (n for n in self._spelled if isinstance(n, cst.Name) and n in unit.names.within)
                if any(unit.names.binding(name) is binding for name in same):
                    return True
                return any(self._is_size(home, value, seen) for home, value in self._reach.given(binding))
            values = seen_values(unit.names, node)
            return self._is_spelled(node) or any(self._is_size(unit, value, seen) for value in values)
        if isinstance(node, cst.Attribute):
            held = self._state.values.get(node.value)
            things = held.things if held is not None else ()
            written = [w for thing in things for w in fields_of(self._state).writes(thing, node.attr.value)]
            return self._is_spelled(node) or any(w is not None and self._is_size(*w, seen) for w in written)
        return False

    def _is_spelled(self, node: cst.BaseExpression) -> bool:
        return any(node.deep_equals(size) for size in self._spelled)
