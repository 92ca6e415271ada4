"""Whether a suggested cut holds: the whole training is gone through with it taken for granted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from ...dataflow.call_graph import Reach
from ...dataflow.values import State, Unit
from ...syntax.definitions import bindings_value
from ...syntax.nodes import counter
from ...syntax.scopes import Binding
from ...syntax.walk import descendants, nodes_in
from ...training.training import without_gradient
from ..engine.interpreter import Interpreter
from ..engine.layout import (
    REPLICATED,
    Layout,
    Partial,
    Replicated,
    Shard,
    ShardRow,
    ShardSize,
    Unclear,
    Whole,
    inner,
    mapped,
    parts,
)
from ..engine.memory import Seeds
from .cuts import Cut
from .trainings import HandTraining, counts_rounds

_TRIES = 4


class Obstacle(NamedTuple):
    """Why no batch can be cut."""

    unit: Unit
    node: cst.CSTNode
    reason: str
    certain: bool = False
    """The code that makes the batches says so, and they come from no loader."""
    remedy: str = ""
    """What else can be done than to feed it from a loader."""
    plays: bool = False
    """An environment is played."""
    missed: bool = False
    """What was cut is no part of a loss."""


class TrialOutcome(NamedTuple):
    held: Interpreter
    obstacle: Obstacle | None
    counts: list[tuple[cst.CSTNode, cst.CSTNode]]
    """Numbers of rows that have to be those of a shard, each with what has so many."""
    beside: list[Cut]
    """What is made for the whole batch before it, and has to be cut as well: a state."""


class Trial:
    """
    Tries cuts of one training.

    Args:
        state: the solved program.
        reach: its call graph.
        training: the training.
    """

    def __init__(self, state: State, reach: Reach, training: HandTraining) -> None:
        self.state, self.reach, self.training = state, reach, training
        self.unit, self.loop = training.unit, training.loop
        self.code = training.code
        self.inside = set(descendants(self.loop.body))

    def tried(self, cuts: list[Cut]) -> TrialOutcome:
        """Go through the training with a suggestion taken for granted."""
        rows: dict[cst.CSTNode, Layout] = {cut.node: cut.layout for cut in cuts}
        sizes = frozenset(text for cut in cuts for text in cut.sizes)
        counts: list[tuple[cst.CSTNode, cst.CSTNode]] = []
        beside: list[Cut] = []
        while True:
            held = Interpreter(self.state, self.reach, Seeds(rows, sizes, cut=True))
            held.turns(self.loop, self.unit)
            obstacle, whole = self._obstacle(held) or self._unread(held) or self._beside(held) or (None, None)
            size = whole.size if whole is not None else None
            state = self._made_before(held, whole, cuts) if whole is not None else None
            if obstacle is not None and len(counts) + len(beside) < _TRIES:
                if state is not None and state.node not in rows:
                    rows[state.node] = state.layout
                    beside.append(state)
                    continue
                if state is None and size is not None and size not in rows and self._can_follow(size):
                    rows[size] = ShardSize()
                    counts.append((size, cuts[0].node))
                    continue
            return TrialOutcome(held, obstacle, counts, beside)

    def _made_before(self, held: Interpreter, whole: Whole, cuts: list[Cut]) -> Cut | None:
        """The call that makes a tensor for the whole batch before the turns in which the loop has a shard of it."""
        turns = cuts[0].at
        if turns is None or whole.dim is None or whole.size in set(descendants(turns.body)):
            return None
        for call, layout in held.given.items():
            if (
                call not in self.inside
                or call in set(descendants(turns))
                or self.unit.names.function(call) is not self.code
            ):
                continue
            made = list(parts(layout))
            alike = all(isinstance(one, Whole) and one.dim == whole.dim for one in made)
            if alike and any(isinstance(one, Whole) and one.node is whole.node for one in made):
                return Cut(call, self.unit, mapped(layout, _shard), cuts[0].sizes)
        return None

    def _obstacle(self, held: Interpreter) -> tuple[Obstacle, Whole | None] | None:
        for record in self.training.backwards:
            layout = held.backwards.get(record.node)
            if layout is None:
                return Obstacle(record.unit, record.node, "the way to this backward pass could not be followed"), None
            layout = inner(layout)
            if isinstance(layout, Partial) or (isinstance(layout, Unclear) and layout.otherwise == "mean"):
                continue  # a finding says where a loss that may be chosen is none of its rows
            if isinstance(layout, Unclear):
                place = self.reach.unit_of(layout.node, record.unit)
                return Obstacle(place, layout.node, layout.reason, remedy=layout.remedy), layout.whole
            if isinstance(layout, Replicated):
                return Obstacle(record.unit, record.node, "where its batches are made was not found", missed=True), None
            return Obstacle(record.unit, record.node, "this loss is no mean and no sum over the rows of a batch"), None
        return None

    def _can_follow(self, size: cst.CSTNode) -> bool:
        """Whether a number of rows is read where the shard has a name, or can get one first."""
        names = self.unit.names
        if size not in names.parents or names.function(size) is not self.code:
            return False
        return size in self.inside or self.beside(size) is not None

    def beside(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The statement around a node in the block that the loop is in; None where it is in another block."""
        names = self.unit.names
        block = names.block(self.loop)
        return next((around for around in names.ancestors(node) if names.parents.get(around) is block), None)

    def _unread(self, held: Interpreter) -> tuple[Obstacle, None] | None:
        """What cannot be made whole again after the training, and is read there."""
        for binding, layout in self.left_over(held):
            if not isinstance(layout, Shard) or layout.dim or layout.merged:
                reason = f"`{binding.name}` is computed from it, and is read as a whole after the training"
                return Obstacle(self.unit, binding.definitions[-1], reason), None
        return None

    def _beside(self, held: Interpreter) -> tuple[Obstacle, None] | None:
        """What a loop hands to a model beside the batch that is cut: of its rows nothing is known, and each process
        may have other ones."""
        for call, layouts in held.fed.items():
            whole = without_gradient(self.unit, call) or self.training.evaluates(self.state, self.reach, call)
            if call in self.inside and whole:
                continue  # an evaluation of what all processes have
            if call not in self.inside or any(isinstance(inner(layout), (Shard, ShardRow)) for layout in layouts):
                continue
            for arg in call.args:
                name = self._handed_out(arg.value)
                if name is not None:
                    return Obstacle(self.unit, call, f"it cannot be told where the rows of `{name}` are"), None
        return None

    def _handed_out(self, value: cst.BaseExpression, depth: int = 3) -> str | None:
        """The variable of a loop over something else than numbers that a value comes from."""
        for name in nodes_in(value, cst.Name):
            binding = self.unit.names.binding(name)
            for definition in binding.definitions if binding is not None else ():
                loop = next(self.unit.names.enclosing(definition, cst.For), None)
                if isinstance(loop, cst.For) and definition in set(descendants(loop.target)):
                    if definition is not counter(loop) and not counts_rounds(self.unit, loop.iter):
                        return name.value
            for made in bindings_value(self.unit.names, binding) if binding is not None and depth else ():
                if (found := self._handed_out(made, depth - 1)) is not None:
                    return found
        return None

    def left_over(self, held: Interpreter) -> Iterator[tuple[Binding, Layout]]:
        """Variables that the training sets to rows of one process, and that are read after it."""
        scope, order = self.unit.names.scopes[self.code], self.unit.names.order
        end = self.unit.names.end(self.loop)
        for binding in scope.bindings.values():
            layout = inner(held.values.get(binding, REPLICATED))
            if isinstance(layout, (Shard, ShardRow)) and any(d in self.inside for d in binding.definitions):
                last = max(order(d) for d in binding.definitions)
                if any(order(read) > end for read in binding.reads) and last <= end:
                    yield binding, layout


def _shard(whole: Layout) -> Layout:
    return Shard(whole.dim or 0) if isinstance(whole, Whole) else whole
