"""
Which values are equal on all processes, and which are one process's own.

What comes from a batch of a prepared loader is one process's own until it is gathered or reduced. From there it follows
assignments, arguments, returns, and objects that collect. A function's result is judged by the arguments of each call,
an object of the program's own classes as a whole: two meters of one class are two things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from ...facts.module import Gather
from ...facts.roles import Origin, Role
from ...facts.torch_api import questions, tensor_parts
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.containers import key_of
from ..dataflow.drawn_batches import iterator_drawn
from ..dataflow.solver import Slot
from ..dataflow.values import CallRecord, Instance, Mapping, State, Unit, origins
from ..syntax.definitions import unshadowed
from ..syntax.nodes import FunctionNode, is_zero, positional
from ..syntax.scopes import Binding
from ..syntax.walk import children, descendants, nodes_in
from ..training.draws import drawn
from ..training.training import Training, hooked
from .expressions import arguments, counts_dimensions, is_width, value_at
from .lengths import Length, changed_by, counts_rows, is_list
from .made_whole import MadeWhole, is_joining, is_joint_step
from .own_answers import functions_in, own_answers
from .presence import DivergenceSource, Presence, Presences, Variable, asked_for_none
from .writes import TENSOR_PARTS, Key, Part, WrittenValue, field_of, writes_of

_SAME = frozenset("__class__ __name__ dataset".split())
"""Attributes of what is sharded that are equal on all processes, beside those that describe a tensor."""
_SAME_METHODS = frozenset("dim is_cuda is_floating_point get_device requires_grad_".split())


@dataclass(eq=False)
class _Summary:
    """On what the result of a function hangs."""

    parameters: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    """The parameters of which it only matters whether they are None."""
    keys: set[Key] = field(default_factory=set)
    whole: bool = False
    """Not while it is made: a function that calls itself asks for its own."""


class Equality:
    """
    Answers for one program.

    Args:
        shared: loops whose loader gives each process its own shard.
        gathers: what is made whole, and where.
        cut: expressions that give the rows of one process, of a batch that no loader yields.
        early: whether a node reads a loader before that is prepared: what it reads is no shard.
        branches: what is set or returned under a condition depends on that condition, too: ``bad += 1``.
        clock: what each process reads for itself, by the clock or of its device, is its own as well; so is whether
            there is a file, asked between steps, and what the handler of a signal sets.
    """

    def __init__(
        self,
        state: State,
        reach: Reach,
        training: Training,
        shared: Iterable[cst.CSTNode],
        gathers: Iterable[tuple[Unit, Gather]],
        cut: Iterable[cst.CSTNode] = (),
        *,
        early: Callable[[cst.CSTNode, Origin], bool] = lambda node, loader: False,
        branches: bool = False,
        clock: bool = False,
        same_rows: bool = False,
    ) -> None:
        self._clock = clock
        self.state, self.reach, self.training = state, reach, training
        self.shared = set(shared)
        self._cut = set(cut)
        self._early = early
        self._same_rows = same_rows
        self._branches = branches
        self._gathers = list(gathers)
        self._whole = MadeWhole(state, self._gathers)
        self._writes = writes_of(reach)
        self._summaries: dict[tuple[FunctionNode, int | None, bool], _Summary] = {}
        self._verdicts: dict[Key, bool] = {}
        self._found_behind: dict[Key, list[Key]] = {}
        self._depended: dict[cst.CSTNode, tuple[Key, ...]] = {}
        self._asked_while_open = 0
        """How often a function's summary was read before it was whole: what that gave is not kept."""
        self._answers = own_answers(reach, training)
        self._presences = Presences(state, reach, self._keys, self._is_given, self._is_drawn)

    def also(self, loop: cst.CSTNode, gathers: Iterable[tuple[Unit, Gather]]) -> Equality:
        """What would be equal if the turns of one more loop were each process's own, with these gathers."""
        loops = (*self.shared, loop)
        return Equality(
            self.state, self.reach, self.training, loops, gathers, self._cut, early=self._early, branches=True
        )

    def but(self, nodes: Iterable[cst.CSTNode], gathers: Iterable[tuple[Unit, Gather]] = ()) -> Equality:
        """What would be equal if some expressions were each process's own, with as many rows as on all others, and some
        more were made whole."""
        cut, whole = (*self._cut, *nodes), (*self._gathers, *gathers)
        state, reach, training = self.state, self.reach, self.training
        ways = {"branches": True, "same_rows": True}
        return Equality(state, reach, training, self.shared, whole, cut, early=self._early, **ways)

    @cached_property
    def timed(self) -> Equality:
        """What is equal where each process asks for the time, for the memory of its device, or for a file by itself."""
        return self._with(clock=True)

    @cached_property
    def chosen(self) -> Equality:
        """What is equal where what is set or returned under a condition depends on that condition, too."""
        return self._with(branches=True)

    def _with(self, *, clock: bool = False, branches: bool = False) -> Equality:
        state, reach, training, shared = self.state, self.reach, self.training, self.shared
        ways = {"clock": clock or self._clock, "branches": branches or self._branches}
        return Equality(state, reach, training, shared, self._gathers, self._cut, early=self._early, **ways)

    def is_local(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether an expression may differ from process to process; of a condition, whether it is met."""
        around = unit.names.parents.get(node)
        tested = isinstance(around, (cst.If, cst.While)) and around.test is node
        keys = self._truth(unit, node) if tested else self._keys(unit, node)
        return any(self._comes_from_share(key) for key in keys)

    def given(self, unit: Unit, node: cst.CSTNode) -> Iterator[WrittenValue]:
        """What the variables, objects and attributes in an expression are given, as far as it sees that."""
        for key in self._keys(unit, node):
            yield from self._seen(key)

    def local_names(self, unit: Unit, node: cst.CSTNode) -> list[cst.Name]:
        """The names in an expression that hold something of one process's own."""
        names = [n for n in nodes_in(node, cst.Name) if n in unit.names.within]
        return [n for n in names if any(self._comes_from_share(key) for key in self._keys(unit, n))]

    def local_places(self, unit: Unit, node: cst.CSTNode) -> Iterator[tuple[Key, Sequence[WrittenValue]]]:
        """The attributes in an expression, as ``self.best``, and the objects, that hold something of one process's own,
        each with what it is given."""
        places: dict[Key, None] = {}
        for part in nodes_in(node, cst.Name, cst.Attribute):
            slot = self.state.values.get(part)
            places |= dict.fromkeys(t for t in (slot.things if slot is not None else ()) if isinstance(t, Instance))
            called = unit.names.parents.get(part)
            if isinstance(part, cst.Attribute) and not (isinstance(called, cst.Call) and called.func is part):
                places[field_of(unit, part) or (None, part.attr.value)] = None
        yield from ((key, self._writes.of(key)) for key in places if self._comes_from_share(key))

    def source(self, binding: Binding) -> cst.CSTNode | None:
        """The place from which something of one process's own comes into a variable; None where nothing does."""
        return self._source([Variable(binding, tuple(binding.definitions))])

    def source_of(self, unit: Unit, node: cst.CSTNode) -> cst.CSTNode | None:
        """The place from which something of one process's own comes into an expression."""
        return self._source([*self._truth(unit, node), *self._keys(unit, node)])

    def _source(self, pending: list[Key]) -> cst.CSTNode | None:
        seen: set[Key] = set()
        while pending:
            key = pending.pop(0)
            if isinstance(key, DivergenceSource):
                return key.node
            if key not in seen and self._verdicts.get(key) is not False:
                seen.add(key)
                pending.extend(self._made_from(key))
        return None

    # Where it comes from ----------------------------------------------------------------------------------------------

    def _comes_from_share(self, start: Key) -> bool:
        if start not in self._verdicts:
            self._follow(start)
        return self._verdicts[start]

    def _follow(self, start: Key) -> None:
        """Judges a key and all that it was made from: each is followed once, however many ask for it."""
        found, own = [start], []
        made: dict[Key, list[Key]] = {start: []}
        for key in found:  # grows
            if isinstance(key, DivergenceSource) or self._verdicts.get(key):
                own.append(key)
            elif key not in self._verdicts:
                for behind in self._made_from(key):
                    if behind not in made:
                        found.append(behind)
                    made.setdefault(behind, []).append(key)
        for key in found:
            self._verdicts.setdefault(key, False)
        while own:
            key = own.pop()
            self._verdicts[key] = True
            own.extend(of for of in made[key] if not self._verdicts[of])

    def _made_from(self, key: Key) -> list[Key]:
        if key not in self._found_behind:
            self._found_behind[key] = list(self._behind(key))
        return self._found_behind[key]

    def _behind(self, key: Key) -> Iterator[Key]:
        """What a variable, an object or an attribute was made from."""
        if isinstance(key, Presence):
            yield from self._presences.behind(key)
            if any(isinstance(d, cst.Param) for d in key.definitions):
                yield from self._handed(key.binding, self._presences.of)
            return
        if isinstance(key, Length):
            yield from self._lengthened(key.held)
            return
        seen = key.definitions if isinstance(key, Variable) else ()
        for write in self._seen(key):
            unit, value = write.unit, write.value
            yield from self._conditions(unit, write.node)
            if write.loop in self.shared:
                yield DivergenceSource(write.loop)
            elif self._clock and self._answers.on_signal(write):
                yield DivergenceSource(write.node)
            elif isinstance(value, Part) and value.call in self._cut:
                yield DivergenceSource(value.call)
            elif isinstance(value, Part):
                yield from self._call(unit, value.call, value.place) if value.call not in self._whole.nodes else ()
            else:
                yield from self._keys(unit, value)
        if isinstance(key, Variable) and any(isinstance(d, cst.Param) for d in seen):
            yield from self._handed(key.binding, self._keys)

    def _seen(self, key: Key) -> Iterator[WrittenValue]:
        """What a key is given, as far as the read of a variable sees it."""
        seen, place = (key.definitions, key.binding) if isinstance(key, Variable) else ((), key)
        for write in self._writes.of(place):
            if write.definition is None or write.definition in seen:
                yield write

    def _lengthened(self, held: Key) -> Iterator[Key]:
        """What the number of elements of a list depends on."""
        seen, place = (held.definitions, held.binding) if isinstance(held, Variable) else ((), held)
        for write in self._seen(held):
            if write.loop in self.shared:
                yield DivergenceSource(write.loop)
            else:
                yield from changed_by(write.unit, write.value, self._keys, self._under, self._measured)
        for unit, call in self._writes.shrunk(place):
            yield from self._under(unit, call)
        if isinstance(held, Variable) and any(isinstance(d, cst.Param) for d in seen):
            yield from self._handed(held.binding, self._measured)

    def _measured(self, unit: Unit, node: cst.CSTNode) -> Iterator[Key]:
        """What it depends on how many elements a value has."""
        if not is_list(self.state, node):
            yield from self._keys(unit, node)
        elif isinstance(node, cst.Attribute):
            yield Length(field_of(unit, node))
        elif isinstance(node, cst.Name) and (binding := unit.names.binding(node)) is not None:
            yield Length(Variable(binding, unshadowed(unit.names, binding, node)))

    def _truth(self, unit: Unit, test: cst.CSTNode) -> Iterator[Key]:
        """What it depends on whether a condition is met: a list by itself is, if it has elements."""
        if isinstance(test, cst.BooleanOperation):
            yield from (*self._truth(unit, test.left), *self._truth(unit, test.right))
        elif isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            yield from self._truth(unit, test.expression)
        elif isinstance(test, (cst.Name, cst.Attribute)):
            yield from self._measured(unit, test)
        else:
            yield from self._keys(unit, test)

    def _handed(self, param: Binding, keys: Callable[[Unit, cst.CSTNode], Iterable[Key]]) -> Iterator[Key]:
        """What the callers of a function hand to one of its parameters."""
        function = param.scope.node
        for site in self.reach.sites(function):
            if isinstance(function, (cst.FunctionDef, cst.Lambda)):
                unit = self.state.calls[site].unit
                for value in arguments(site, function, param.name):
                    yield from keys(unit, value)
        for unit, value in hooked(self.state, self.training, function) if function in self.state.hooks else ():
            yield from keys(unit, value)

    def _conditions(self, unit: Unit, node: cst.CSTNode) -> Iterator[Key]:
        """What the conditions depend on under which a value is set or returned."""
        yield from self._under(unit, node) if self._branches else ()

    def _under(self, unit: Unit, node: cst.CSTNode) -> Iterator[Key]:
        for around in unit.names.enclosing(node, cst.If, cst.While):
            yield from self._truth(unit, around.test)

    def _keys(self, unit: Unit, node: cst.CSTNode) -> Iterable[Key]:
        """What an expression depends on."""
        found = self._depended.get(node)
        if found is None:
            open_ones = self._asked_while_open
            found = tuple(dict.fromkeys(self._read(unit, node)))
            if self._asked_while_open == open_ones:
                self._depended[node] = found
        return found

    def _read(self, unit: Unit, node: cst.CSTNode) -> Iterator[Key]:
        if node in self._whole.nodes or self._asks_for_key(node):
            return
        if (asked := asked_for_none(node)) is not None:
            yield from self._presences.of(unit, asked)
            return
        if node in self._cut:
            yield DivergenceSource(node)
            return
        if type(node) is cst.Name:
            yield from self._name(unit, node)
        elif type(node) is cst.Attribute:
            yield from self._attribute(unit, node)
        elif type(node) is cst.Call:
            yield from self._call(unit, node)
        elif type(node) is cst.Lambda:
            yield from self._summary(node, None).keys
        elif type(node) is not cst.FunctionDef and not is_width(node):
            for child in children(node):
                yield from self._keys(unit, child)

    def _asks_for_key(self, node: cst.CSTNode) -> bool:
        """``"loss" in figures``: whether a batch, an output of a model or a dict that is written out once has a key
        that is never set after that is the same on all processes, whatever its values are."""
        if type(node) is not cst.Comparison or len(node.comparisons) != 1:
            return False
        asked, key = node.comparisons[0], key_of(node.left)
        if key is None or not isinstance(asked.operator, (cst.In, cst.NotIn)):
            return False
        slot = self.state.values.get(asked.comparator)
        held = list(slot.things) if slot is not None else []
        dicts = [thing for thing in held if isinstance(thing, Mapping)]
        given = [thing for thing in held if isinstance(thing, Origin) and thing.role in (Role.OUTPUT, Role.BATCH)]
        known = bool(held) and len(dicts) < 2 and len(dicts) + len(given) == len(held)
        return known and not any(each.rest.things for each in dicts) and key not in self._set_keys

    @cached_property
    def _set_keys(self) -> set[str | None]:
        """The constant keys under which something is put into a dict after it was made."""
        nodes = (node for unit in self.reach.units for node in unit.names.every(cst.AssignTarget, cst.AugAssign))
        targets = (node.target for node in nodes if isinstance(node, (cst.AssignTarget, cst.AugAssign)))
        parts = (part.slice for target in targets if isinstance(target, cst.Subscript) for part in target.slice)
        return {key_of(part.value) for part in parts if isinstance(part, cst.Index)}

    def _name(self, unit: Unit, node: cst.Name) -> Iterator[Key]:
        binding = unit.names.binding(node)
        if binding is None or node.value == "self" or self._whole.covers(unit, binding, node):
            return
        slot = self.state.values.get(node)
        if slot is not None:
            yield from (t for t in slot.things if isinstance(t, Instance))
            yield from self._given_away(slot)
        yield Variable(binding, unshadowed(unit.names, binding, node))

    def _attribute(self, unit: Unit, node: cst.Attribute) -> Iterator[Key]:
        describes = tensor_parts.asks_how if self._same_rows else tensor_parts.describes
        if node.attr.value in _SAME or describes(node.attr.value):
            return
        own = field_of(unit, node)
        if own is not None or node.attr.value not in TENSOR_PARTS:
            yield (None, node.attr.value) if own is None else own
        slot = self.state.values.get(node)
        if slot is not None:
            yield from (t for t in slot.things if isinstance(t, Instance))
            yield from self._given_away(slot)
        if self._clock and own is None:
            yield from map(DivergenceSource, self._answers.kept_in(node, self._writes, conditions=self._branches))
        yield from self._keys(unit, node.value)

    def _given_away(self, slot: Slot) -> Iterator[Key]:
        """What the results of functions depend on that are handed on, uncalled: ``map(score, ks)``, ``key=self.rank``.
        Whoever gets them may call them, with what it is given beside them."""
        for function in functions_in(slot):
            yield from self._summary(function.node, None).keys

    def _call(self, unit: Unit, node: cst.Call, place: int | None = None) -> Iterator[Key]:
        """What a call's result depends on; ``place``: one of the values that it gives."""
        record = self.state.calls.get(node)
        name = method_name(node)
        if record is not None and (is_joining(record) or is_joint_step(record)):
            return
        if name in _SAME_METHODS or (name == "size" and node.args and not is_zero(node.args[0].value)):
            return
        if counts_dimensions(node) or (record is not None and questions.asks_type(outside_name(record))):
            return
        if name == "len" and len(node.args) == 1 and origins(self.state.values.get(node.args[0].value), Role.LOADER):
            return  # all have as many batches
        if name == "len" and len(node.args) == 1 and is_list(self.state, node.args[0].value):
            yield from self._measured(unit, node.args[0].value)
            return
        if self._same_rows and counts_rows(self.state, node):
            return
        if record is not None and ((iterator_drawn(record) and self._drawn(node)) or self._is_noise(record)):
            yield DivergenceSource(node)
            return
        if self._clock and record is not None and self._answers.is_asked_apart(record):
            yield DivergenceSource(node)
            return
        called = self.reach.called(node)
        if called and node not in self.training.forwards:
            for function in called:
                yield from self._result(unit, node, function, place)
            if isinstance(node.func, cst.Attribute) and any(self._gives_own(function, place) for function in called):
                yield from self._keys(unit, node.func.value)
            return
        for part in (node.func, *node.args):
            yield from self._keys(unit, part)

    def _is_drawn(self, node: cst.CSTNode) -> bool:
        """Whether a loop, or a call, takes a batch from a prepared loader."""
        return node in self.shared or (isinstance(node, cst.Call) and self._drawn(node))

    def _drawn(self, node: cst.Call) -> bool:
        batches = origins(self.state.values.get(node), Role.BATCH)
        prepared: set[Origin] = {o for loop in self.shared for o in self.reach.loaders(loop)}
        loaders = [batch.source for batch in batches if batch.source is not None and batch.source in prepared]
        return any(not self._early(node, loader) for loader in loaders)

    def _is_noise(self, record: CallRecord) -> bool:
        """Whether a training step draws from torch's generators, which differ from process to process: before
        ``prepare`` they are the same everywhere."""
        found = drawn(record)
        if found is None or found.generator != "torch":
            return False
        return not self.shared.isdisjoint(self.reach.batch_loops(record.node, record.unit))

    def _result(
        self, unit: Unit, call: cst.Call, function: FunctionNode, place: int | None, *, asked: bool = False
    ) -> Iterator[Key]:
        """What one call of a function of the program gives, by its arguments; or whether it gives something."""
        summary = self._summary(function, place, asked)
        yield from summary.keys
        for name in summary.parameters:
            for value in arguments(call, function, name):
                yield from self._keys(unit, value)
        for name in summary.asked:
            for value in arguments(call, function, name):
                yield from self._presences.of(unit, value)

    def _gives_own(self, function: FunctionNode, place: int | None) -> bool:
        """Whether a method gives its object, or something of it: else what the object holds does not matter."""
        if any(isinstance(key, tuple) and key[0] is not None for key in self._summary(function, place).keys):
            return True
        unit, own = self.reach.unit(function), {param.name.value for param in positional(function)[:1]}
        given = [r.value for r in unit.names.returns.get(function, ()) if r.value is not None]
        parts = (part for value in given for part in descendants(value))
        return self.reach.yields(function) or any(isinstance(n, cst.Name) and n.value in own for n in parts)

    def _is_given(self, unit: Unit, call: cst.Call, function: FunctionNode, place: int | None) -> Iterator[Key]:
        """What decides, by its arguments, whether one call of a function of the program gives a value, or None."""
        yield from self._result(unit, call, function, place, asked=True)

    def _summary(self, function: FunctionNode, place: int | None, asked: bool = False) -> _Summary:
        """On which of its parameters, and on what else, a function's result hangs, or one of its results; or, if that
        is ``asked``, whether it is None."""
        if (summary := self._summaries.get((function, place, asked))) is not None:
            self._asked_while_open += not summary.whole
            return summary
        summary = self._summaries[function, place, asked] = _Summary()
        unit = self.reach.unit(function)
        own = unit.names.scopes[function]
        given = (r.value for r in unit.names.returns.get(function, ()))
        returns: list[cst.CSTNode] = [value_at(value, place) for value in given if value is not None]
        if self.reach.yields(function):  # each of its values is what was yielded, at whatever place
            returns += [node for node in self.reach.own(function) if isinstance(node, cst.Yield)]
        under = [key for value in returns for key in self._conditions(unit, value)]
        if isinstance(function, cst.Lambda):
            returns = [function.body]
        seen: set[Key] = set()
        pending = [*under, *(key for value in returns for key in self._keys(unit, value))]
        if asked:
            pending = list(self._presences.given(function, returns))
        while pending:
            key = pending.pop()
            if key in seen:
                continue
            seen.add(key)
            if not isinstance(key, Variable) or key.binding.scope.function is not own:
                summary.keys.add(key)
            elif any(isinstance(d, cst.Param) for d in key.definitions):
                (summary.asked if isinstance(key, Presence) else summary.parameters).add(key.binding.name)
                rest = tuple(d for d in key.definitions if not isinstance(d, cst.Param))
                pending.extend(self._behind(type(key)(key.binding, rest)))
            else:
                pending.extend(self._behind(key))
        summary.whole = True
        return summary
