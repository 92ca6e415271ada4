"""What each variable and expression of a loop over batches is, once its batches are cut into shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import libcst as cst

from ...facts.roles import SHARES, Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach, reach_of
from ..dataflow.callees import outside_names
from ..dataflow.drawn_batches import iterator_drawn
from ..dataflow.values import State, Unit, origins
from ..syntax.nodes import counter
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from .engine.interpreter import Interpreter
from .engine.layout import (
    REPLICATED,
    Each,
    Layout,
    Shard,
    Unclear,
    held,
    holds_chosen,
    holds_figure,
    join,
    join_all,
    mapped,
    parts,
    varies,
)
from .engine.memory import Seeds
from .padding import long_names

MOVES = frozenset({"to", "cuda", "cpu"})
"""Methods that take a tensor to a device, with the same rows."""
_COMPARING = (Role.LOSS, Role.CRITERION)


class LoopLayouts:
    """
    The layouts of one loop, a model being taken to give rows for rows where its code does not say otherwise.

    Args:
        unit: the module of the loop.
        loop: the loop.
        walk: through the loop, done. Who asks for expressions goes on from there.
    """

    def __init__(self, unit: Unit, loop: cst.CSTNode, walk: Interpreter) -> None:
        self.unit, self._walk = unit, walk
        self._loop = loop
        self._numbered: tuple[Sequence[cst.CSTNode], dict[cst.CSTNode, int]] = (), {}
        """The statements that were asked about last, with their numbers."""

    @cached_property
    def _inside(self) -> set[cst.CSTNode]:
        return set(descendants(self._loop))

    def of(self, binding: Binding, statements: Sequence[cst.CSTNode]) -> Layout:
        """What a variable holds when some code of the loop has run: its target, and the first statements of a turn."""
        found: Layout | None = None
        places: dict[int, list[cst.CSTNode]] = {}
        for definition in binding.definitions:
            if definition in self._walk.held and (place := self._place(definition, statements)) is not None:
                places.setdefault(place, []).append(definition)
        for place in sorted(places, reverse=True):
            statement, here = statements[place], places[place]
            if isinstance(statement, (cst.SimpleStatementLine, cst.Name, cst.Tuple, cst.List)):
                last = self._walk.held[max(here, key=self.unit.names.order)]
                return join(last, found) if found is not None else last
            found = join_all([*([found] if found is not None else []), *(self._walk.held[d] for d in here)])
        return REPLICATED if found is None else found

    def _place(self, node: cst.CSTNode, statements: Sequence[cst.CSTNode]) -> int | None:
        """The number of the statement that a node is in."""
        if self._numbered[0] is not statements:
            self._numbered = statements, {statement: place for place, statement in enumerate(statements)}
        around = (node, *self.unit.names.ancestors(node))
        return next((place for each in around if (place := self._numbered[1].get(each)) is not None), None)

    def holds_figure(self, binding: Binding) -> bool:
        """Whether a variable is somewhere in the loop given one number that the rows of the batch were reduced to."""
        return any(holds_figure(self._walk.held[d]) for d in binding.definitions if d in self._walk.held)

    def has_chosen(self, binding: Binding) -> bool:
        """Whether a variable is somewhere in the loop given some of the batch's rows, chosen by what is in them."""
        return any(holds_chosen(self._walk.held[d]) for d in binding.definitions if d in self._walk.held)

    def is_rows(self, binding: Binding) -> bool:
        """Whether a variable holds a tensor with the rows of the batch along its first dimension, or nothing but such
        tensors, wherever the loop sets it."""
        held = [part for layout in self._set_here(binding) for part in parts(layout)]
        return bool(held) and all(isinstance(part, Shard) and part.dim == 0 for part in held)

    def is_one_number(self, binding: Binding) -> bool:
        """Whether the one number is read of what a variable holds, or of something in it, and its rows were only taken
        for granted."""
        return any(map(self.has_number, self._set_here(binding)))

    def has_number(self, layout: Layout) -> bool:
        """Whether the one number of a value, or of something in it, is read, and its rows were only taken for
        granted."""
        rows = (one for one in held(layout) if isinstance(one, Shard) and one.assumed is not None)
        return any(one.assumed is not None and one.assumed.node in self._walk.numbers for one in rows)

    def gives_rows(self, node: cst.BaseExpression) -> bool:
        """Whether an expression gives a tensor with the rows of the batch along its first dimension."""
        layout = self.value(node)
        return isinstance(layout, Shard) and layout.dim == 0 and layout.host is False

    def is_tensor(self, binding: Binding) -> bool:
        """Whether a variable holds a tensor with rows of the batch, wherever the loop sets it."""
        held = self._set_here(binding)
        return bool(held) and all(isinstance(layout, Shard) and layout.host is False for layout in held)

    def _set_here(self, binding: Binding) -> list[Layout]:
        """What the code of the loop gives a variable, which other code may have set too."""
        return [self._walk.held.get(d, REPLICATED) for d in binding.definitions if d in self._inside]

    def depends_on_rows(self, node: cst.BaseExpression) -> bool:
        """Whether an expression that the walk went through gives rows of the batch, or what is computed from them."""
        found = self._walk.held.get(node)
        return found is not None and varies(found)

    def at_definitions(self, binding: Binding) -> list[Layout]:
        """What a variable holds wherever it is set."""
        return [self._walk.held.get(d, REPLICATED) for d in binding.definitions]

    def fixes_shape(self, nodes: Iterable[cst.CSTNode]) -> bool:
        """Whether one of some calls of the loop gives rows a shape into which only so many fit:
        ``x.view(size, 1, 28, 28)``."""
        calls = (node for node in nodes if isinstance(node, cst.Call))
        return any(isinstance(one, Unclear) and one.fixed for call in calls for one in held(self.value(call)))

    def set_in(self, loop: cst.For | cst.While) -> Iterator[tuple[cst.Name, Layout]]:
        """The names that the code of a loop sets, in their order, each with its layout there."""
        for node in descendants(loop):
            binding = self.unit.names.binding(node) if isinstance(node, cst.Name) else None
            if isinstance(node, cst.Name) and binding is not None and node in binding.definitions:
                if node in self._walk.held:
                    yield node, self._walk.held[node]

    def unit_of(self, node: cst.CSTNode) -> Unit:
        """The module of a node."""
        return self._walk.reach.unit_of(node, self.unit)

    def backward(self, call: cst.Call) -> Layout | None:
        """What a backward pass of the loop starts from; None where the way to it could not be followed."""
        return self._walk.backwards.get(call)

    def ran(self, node: cst.CSTNode) -> bool:
        """Whether the walk came to an expression: not to those of branches that the loop's settings leave out."""
        return node in self._walk.held or node in self._walk.within

    def value(self, node: cst.BaseExpression) -> Layout:
        """What an expression of the loop gives, or one of a function that it calls."""
        found = self._walk.held.get(node)
        found = found if found is not None else self._walk.within.get(node)
        return found if found is not None else self._walk.value(node, self.unit_of(node))

    def container(self, node: cst.BaseExpression) -> Layout:
        """What an expression of the loop gives: of a container, also what is known of how many elements it has."""
        return self._walk.container(node, self.unit_of(node))

    def counts_chosen(self, node: cst.BaseExpression) -> bool:
        """Whether some of the batch's rows, chosen by what is in them, are in an expression: it may count them."""
        parts = nodes_in(node, cst.Name, cst.Subscript)
        return any(holds_chosen(self.value(part)) for part in parts)


class ProgramLayouts:
    """The layouts of all loops over batches of a program: each loop is gone through once, for all that ask."""

    def __init__(self, state: State) -> None:
        self._state, self._reach = state, reach_of(state)
        self._walks: dict[cst.CSTNode, Interpreter] = {}
        self._around: dict[cst.CSTNode, LoopLayouts] = {}
        self._by_hand: dict[cst.For | cst.While, Unit] = {}
        """Those whose batches the script makes by hand."""
        self._elsewhere: Interpreter | None = None
        self._outside: dict[cst.BaseExpression, Layout] = {}
        """What expressions give that run in no loop over batches."""

    def cut(self, unit: Unit, loops: Iterable[cst.CSTNode], walk: Interpreter) -> None:
        """Take over the walk through a training whose batches the script makes by hand, and that are cut into shards.

        Args:
            unit: the module of the training.
            loops: the innermost loops around its backward passes.
            walk: through all of it, with the rows where they are cut.
        """
        for loop in loops:
            if isinstance(loop, (cst.For, cst.While)):
                self._by_hand[loop] = self._reach.unit_of(loop, unit)
                self._walks[loop] = walk

    def is_by_hand(self, loop: cst.CSTNode) -> bool:
        """Whether the script makes the batches of a loop, and the rewriter cuts each into shards."""
        return loop in self._by_hand

    def value(self, unit: Unit, node: cst.BaseExpression) -> Layout:
        """What an expression gives in the loops over batches in which it runs; outside of them, by what they set."""
        loops = self.around(unit, node)
        if loops:
            return join_all(loop.value(node) for loop in loops)
        if self._elsewhere is None:
            rows: dict[cst.CSTNode, Layout] = {}
            for walk in (self._walk(self._reach.unit_of(loop, unit), loop) for loop in self._loops()):
                rows.update(walk.seeds.rows)
            self._elsewhere = Interpreter(self._state, self._reach, Seeds(rows, models=True))
        if node not in self._outside:
            known = self._elsewhere.looked_up(node, unit)
            self._outside[node] = self._elsewhere.copied(beside=True).value(node, unit) if known is None else known
        return self._outside[node]

    def _loops(self) -> Iterator[cst.For | cst.While | cst.CompFor]:
        """All loops over batches."""
        for loop in (*(loop for loop, loaders in self._state.loaders.items() if loaders), *self._by_hand):
            if isinstance(loop, (cst.For, cst.While, cst.CompFor)):
                yield loop

    def loop(self, unit: Unit, loop: cst.For | cst.While | cst.CompFor) -> LoopLayouts:
        """Those of one loop of a module, over batches; the rows of each are cut into shards."""
        return LoopLayouts(unit, loop, self._walk(unit, loop).copied())

    def around(self, unit: Unit, node: cst.CSTNode) -> list[LoopLayouts]:
        """Those of the innermost loops over batches in which a node runs, also by way of the callers of its
        function."""
        found = self._innermost(unit, node)
        for loop in found:
            if loop not in self._around:
                self._around[loop] = self.loop(self._reach.unit_of(loop, unit), loop)
        return [self._around[loop] for loop in found]

    def _innermost(self, unit: Unit, node: cst.CSTNode) -> list[cst.For | cst.While | cst.CompFor]:
        loops = self._reach.batch_loops(node, unit)
        if not loops and self._by_hand:
            return [loop for loop in self._by_hand if self._reach.is_run_in(loop, node)]
        return [loop for loop in loops if isinstance(loop, (cst.For, cst.While, cst.CompFor))]

    def _walk(self, unit: Unit, loop: cst.For | cst.While | cst.CompFor) -> Interpreter:
        if loop not in self._walks:
            rows = _drawn(self._state, self._reach, unit, loop)
            if not rows and not isinstance(loop, cst.While):
                rows = _rows(self._state, unit, loop)
                long = long_names(self._state, self._reach, loop, rows)
                rows = {name: mapped(one, _as_long) if name in long else one for name, one in rows.items()}
            walk = self._walks[loop] = Interpreter(self._state, self._reach, Seeds(rows, models=True))
            around = unit.names.parents.get(loop)
            if not isinstance(loop, cst.CompFor):
                walk.turns(loop, unit)
            elif isinstance(around, cst.BaseExpression):
                walk.asked(around, unit)
        return self._walks[loop]


def layouts_of(state: State) -> ProgramLayouts:
    """The layouts of a solved program: one object for all that ask."""
    return state.once(ProgramLayouts, lambda: ProgramLayouts(state))


def _drawn(
    state: State, reach: Reach, unit: Unit, loop: cst.For | cst.While | cst.CompFor
) -> dict[cst.CSTNode, Layout]:
    """The calls in a loop that draw its batches, where the loop itself goes through something else."""
    target = None if isinstance(loop, cst.While) else loop.target
    names = list(nodes_in(target, cst.Name)) if target is not None else []
    bindings = (unit.names.binding(name) for name in names)
    if any(origins(state.binding(binding), *SHARES) for binding in bindings if binding is not None):
        return {}
    records = (state.calls.get(node) for node in reach.runs_in(loop) if isinstance(node, cst.Call))
    draws = [r for r in records if r is not None and iterator_drawn(r) and origins(r.result, Role.BATCH)]
    return {record.node: Each(Shard(0)) for record in draws}


def _rows(state: State, unit: Unit, loop: cst.For | cst.CompFor) -> dict[cst.CSTNode, Layout]:
    """The variables of a batch: each a tensor of rows; one alone may hold several of them."""
    number = counter(loop)
    pending: list[cst.CSTNode] = [loop.target]
    names: list[cst.Name] = []
    unpacked: set[cst.CSTNode] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, cst.Name) and node is not number:
            names.append(node)
        elif isinstance(node, (cst.Tuple, cst.List)):
            parts = [element.value for element in node.elements]
            pending.extend(parts)
            unpacked.update(parts if number not in parts else ())
    whole = len(names) == 1 and names[0] not in unpacked and not _is_tensor(state, unit, loop, names[0])
    return {name: Each(Shard(0)) if whole else Shard(0) for name in names}


def _as_long(layout: Layout) -> Layout:
    return replace(layout, long=True) if isinstance(layout, Shard) else layout


def _is_tensor(state: State, unit: Unit, loop: cst.For | cst.CompFor, batch: cst.Name) -> bool:
    """Whether a batch that has one name is used as a tensor: a loss of torch is computed from it, its shape is read; it
    is not opened, and is given no other value than itself somewhere else."""
    binding, inside, taken = unit.names.binding(batch), set(descendants(loop)), False
    for read in binding.reads if binding is not None else ():
        around = unit.names.parents.get(read)
        if read not in inside or (isinstance(around, cst.Attribute) and around.attr.value in MOVES):
            continue
        call = unit.names.parents.get(around) if isinstance(around, (cst.Arg, cst.Attribute)) else None
        if isinstance(around, cst.Arg) and isinstance(call, cst.Call):
            if around.star:
                return False
            criteria = origins(state.values.get(call.func), Role.CRITERION)
            compared = [one.qualified for one in criteria] + list(outside_names(state.calls[call]))
            taken = taken or any(questions.constructed(name) in _COMPARING for name in compared)
        elif isinstance(around, cst.Attribute):
            taken = taken or around.attr.value == "shape" or questions.changes_shape(around.attr.value)
        elif isinstance(around, (cst.Subscript, cst.Assign, cst.For, cst.CompFor)):
            return False
    return taken


def unmoved(value: cst.BaseExpression) -> cst.BaseExpression:
    """What a move is made of: ``x`` of ``x.to(device)``."""
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value in MOVES:
        value = value.func.value
    return value
