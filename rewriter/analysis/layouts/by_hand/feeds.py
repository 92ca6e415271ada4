"""
Batches that something else than a loader hands to a training: a generator, an iterator class, a sampler's method.

Nothing has to be known of what hands them out, as every process asks its own and the batch of the first one counts.
What is in a batch is taken from the code that yields it, where that can be seen, else from how the step uses it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import TypeGuard

import libcst as cst

from ....facts.roles import Role
from ....facts.torch_api.kinds import tensors
from ....facts.torch_api.loading import row, transfer
from ...dataflow.call_graph import Reach
from ...dataflow.callees import method_name, outside_names
from ...dataflow.values import External, State, Unknown, origins
from ...syntax.definitions import added_to, plain_values
from ...syntax.nodes import dotted
from ...syntax.scopes import Binding
from ...syntax.walk import descendants, nodes_in
from ..engine.interpreter import Interpreter
from ..engine.layout import REPLICATED, Each, Layout, Made, Replicated, Several, Shard, mapped
from ..engine.memory import Seeds
from .cuts import Cut
from .data_sources import is_data
from .part_rows import unlike_parts
from .trainings import HandTraining, counts_rounds, is_undefined
from .trial import Obstacle

_WRAPPERS = frozenset("enumerate tqdm iter reversed".split())
_BUILT = (cst.List, cst.Tuple, cst.ListComp, cst.Dict, cst.DictComp, cst.Set, cst.BaseString)
_SIZES = frozenset("batch_size batchsize bs bsz batch_sz".split())
"""How scripts call the number of rows of a batch, in lower case."""
_NUMBERS = frozenset("min max int len".split())
_ROLES = (Role.MODEL, Role.OPTIMIZER, Role.SCHEDULER, Role.LOADER, Role.CRITERION, Role.ACCELERATOR)


class Feeds:
    """
    The places at which what a training is handed can be cut.

    Args:
        state: the solved program.
        reach: its call graph.
        training: the training.
    """

    def __init__(self, state: State, reach: Reach, training: HandTraining) -> None:
        self.state, self.reach, self.training = state, reach, training
        self.unit, self.loop = training.unit, training.loop
        self.code = training.code
        self.unlike: Obstacle | None = None
        """Why a batch that is handed out cannot be cut: its parts have different numbers of rows."""

    def all(self) -> Iterator[list[Cut]]:
        """The suggestions: what the loops go through, the innermost first; then what their turns ask for."""
        sizes = self._sizes()
        for loop in self._loops():
            yield from self._of_target(loop, sizes)
        for loop in self._loops():
            for statement in loop.body.body:
                yield from self._of_call(statement, loop, sizes)

    def asked(self, sizes: frozenset[str]) -> Iterator[Cut]:
        """Of the batches that the turns of the training ask for, those that are asked for by a number of rows."""
        sizes |= self._sizes()
        for loop in self._loops():
            for statement in loop.body.body:
                found = next(self._of_call(statement, loop, sizes), [])
                calls = nodes_in(statement, cst.Call)
                if any(dotted(arg.value) in sizes for call in calls for arg in call.args):
                    yield from found

    def _loops(self) -> list[cst.For | cst.While]:
        """The loops around the steps that are in the code of the training, the innermost first."""
        found: dict[cst.For | cst.While, None] = {}
        for step in self.training.steps:
            around = [step, *self.unit.names.ancestors(step)] if step in self.unit.names.parents else [self.loop]
            for node in around:
                if isinstance(node, (cst.For, cst.While)) and self.unit.names.function(node) is self.code:
                    found[node] = None
                if node is self.loop:
                    break
        return list(found) or [self.loop]

    # ------------------------------------------------------------ what a loop goes through

    def _of_target(self, loop: cst.For | cst.While, sizes: frozenset[str]) -> Iterator[list[Cut]]:
        if not isinstance(loop, cst.For) or not isinstance(loop.body, cst.IndentedBlock):
            return
        source, target = self._unwrapped(loop)
        if source is None or counts_rounds(self.unit, source) or not self._hands_batches(source):
            return
        if self.is_unlike(source):
            return
        element = self._element(source)
        names = list(self._named(target, element))
        bindings = [(name, layout) for name, layout in names if self._is_batch(name, loop)]
        unknown = self._unknown(source)
        yield from self._conversions([name for name, _ in bindings], loop, sizes, unknown)
        for layouts in _readings([layout for _, layout in bindings]):
            pairs = zip(bindings, layouts, strict=True)
            yield [Cut(name, self.unit, layout, sizes, loop, source=unknown) for (name, _), layout in pairs]

    def is_unlike(self, source: cst.BaseExpression) -> bool:
        """Whether the parts of what is handed out have different numbers of rows, so that it cannot be cut."""
        found = unlike_parts(self.state, self.reach, self.unit, source)
        if found is not None:
            self.unlike = Obstacle(*found, certain=True)
        return found is not None

    def _unknown(self, source: cst.BaseExpression) -> str:
        """How a source is spelled of which nothing is known."""
        slot = self.state.values.get(source)
        known = slot is not None and any(not isinstance(thing, (External, Unknown)) for thing in slot.things)
        plain = isinstance(source, (cst.Name, cst.Attribute)) and not known
        return dotted(source) if plain else ""

    def _conversions(
        self, names: list[cst.Name], loop: cst.For | cst.While, sizes: frozenset[str], unknown: str = ""
    ) -> Iterator[list[Cut]]:
        """The calls that make arrays or tensors of some names, where each name is read for that and nothing else."""
        converted = [self._converted(name, loop.body) for name in names]
        calls = [call for found in converted for call in found]
        if not names or not all(converted):
            return
        parents = {self.unit.names.parents.get(call) for call in calls}
        around = {self.unit.names.parents.get(parent) for parent in parents if isinstance(parent, cst.Element)}
        whole = next(iter(around), None)
        if len(around) == 1 and isinstance(whole, cst.Tuple) and len(whole.elements) == len(calls) == len(parents):
            yield [Cut(whole, self.unit, Several((Shard(0),) * len(calls)), sizes, source=unknown)]
        else:
            yield [Cut(call, self.unit, Shard(0), sizes, source=unknown) for call in calls]

    def _unwrapped(self, loop: cst.For) -> tuple[cst.BaseExpression | None, cst.BaseExpression]:
        """What a loop goes through, bars and counters taken off, and the target that takes its elements."""
        source: cst.BaseExpression = loop.iter
        target: cst.BaseExpression = loop.target
        while isinstance(source, cst.Call) and source.args and not source.args[0].star:
            name = method_name(source)
            if name == "enumerate" and isinstance(target, cst.Tuple) and len(target.elements) == 2:
                target = target.elements[1].value
            elif name not in _WRAPPERS or name == "enumerate":
                break
            source = source.args[0].value
        return source, target

    def _hands_batches(self, source: cst.BaseExpression) -> bool:
        """Whether what is looped over may hand out batches; a list that the script builds only if it is of tensors."""
        if origins(self.state.values.get(source), *_ROLES) or is_undefined(self.unit, source):
            return False
        if _is_zip(source):
            return all(self._lists_batches(arg.value) for arg in source.args if not arg.star)
        if isinstance(source, cst.Call) and method_name(source) in ("items", "values", "keys", "parameters"):
            return False
        return not self._built(source) or self._lists_batches(source)

    def _built(self, source: cst.BaseExpression) -> list[cst.BaseExpression]:
        """The lists and tables that the script builds as a source."""
        held = [source, *(plain_values(self.unit.names, source) if isinstance(source, cst.Name) else ())]
        return [node for node in held if isinstance(node, _BUILT)]

    def _lists_batches(self, source: cst.BaseExpression) -> bool:
        """Whether a source is a list of tensors that the script builds, or parts of one."""
        if isinstance(source, cst.Call) and self._cuts(source):
            return is_data(self.state, self.unit, source, set())
        built = self._built(source)
        elements = [element for node in built for element in _elements_of(node)]
        if built and isinstance(source, cst.Name):
            added = added_to(self.unit.names, source)
            elements += [call.args[-1].value for call in added if method_name(call) != "extend"]
        return any(is_data(self.state, self.unit, element, set()) for element in elements)

    def _cuts(self, call: cst.Call) -> bool:
        """``x.split(16)``, ``torch.chunk(x, 4)``: parts of the rows."""
        names = [*outside_names(self.state.calls[call]), f"torch.Tensor.{method_name(call)}"]
        found = [transfer(name, tensors.Reshape) for name in names]
        return any(kind is not None and kind.how == "split" for kind in found)

    def _blank(self) -> Interpreter:
        """An interpreter that knows of no cut."""
        return Interpreter(self.state, self.reach, Seeds({}))

    def _element(self, source: cst.BaseExpression) -> Layout | None:
        """What the code that hands batches out puts into one of them; None where that cannot be seen."""
        if _is_zip(source):
            return Several(tuple(self._element(arg.value) or REPLICATED for arg in source.args))
        given = self._blank().iterated(source, self.unit)
        known = given is not None and (isinstance(given, Made) or not isinstance(given, Replicated))
        return given if known else None

    def _named(self, target: cst.CSTNode, element: Layout | None) -> Iterator[tuple[cst.Name, Layout | None]]:
        """The names that a target gives to the parts of a batch."""
        if isinstance(target, cst.Name):
            yield target, element
        elif isinstance(target, (cst.Tuple, cst.List)):
            for place, one in enumerate(target.elements):
                if isinstance(one, cst.StarredElement):
                    continue
                part = element
                if isinstance(element, Several):
                    part = element.items[place] if len(element.items) == len(target.elements) else None
                elif isinstance(element, Each):
                    part = element.element
                yield from self._named(one.value, part)

    def _is_batch(self, name: cst.Name, loop: cst.For) -> bool:
        """Whether what a name holds may have rows: it is read, is no number of a turn, and nothing that is called."""
        binding = self.unit.names.binding(name)
        reads = self.training.reads(name, loop.body)
        if binding is None or not reads or origins(self.state.binding(binding), *_ROLES):
            return False
        return not any(self._is_number(read) for read in reads)

    def _is_number(self, read: cst.Name) -> bool:
        parent = self.unit.names.parents.get(read)
        if isinstance(parent, cst.BinaryOperation):
            return isinstance(parent.operator, cst.Modulo)
        return isinstance(parent, cst.FormattedStringExpression) or (
            isinstance(parent, cst.Call) and parent.func is read
        )

    def _converted(self, name: cst.Name, loop: cst.CSTNode) -> list[cst.Call]:
        """The calls that make arrays or tensors of a name, where nothing else is done with it: rows may be lists."""
        calls: list[cst.Call] = []
        binding = self.unit.names.binding(name)
        for read in self.training.reads(name, loop):
            if calls and self._is_again(binding, read, calls[-1]):
                continue  # after `x = np.array(x)` the name holds the array
            call = self._conversion(read)
            if call is None:
                return []
            calls.append(call)
        return calls

    def _conversion(self, read: cst.Name) -> cst.Call | None:
        arg = self.unit.names.parents.get(read)
        call = self.unit.names.parents.get(arg) if isinstance(arg, cst.Arg) else None
        if not isinstance(call, cst.Call) or call.args[0] is not arg or call not in self.state.calls:
            return None
        for full in outside_names(self.state.calls[call]):
            found = row(full)
            if found is not None and isinstance(found.transfer, (tensors.Convert, tensors.Create)):
                return call
        return None

    def _is_again(self, binding: Binding | None, read: cst.Name, call: cst.Call) -> bool:
        names = self.unit.names
        statement = names.statement(call)
        own = binding is not None and any(names.statement(d) is statement for d in binding.definitions)
        return own and names.order(read) > names.order(statement)

    # ------------------------------------------------------------ what a turn asks for

    def _of_call(self, statement: cst.CSTNode, loop: cst.For | cst.While, sizes: frozenset[str]) -> Iterator[list[Cut]]:
        """``x, y = next(batches)``, ``x, y = sampler.next_batch()``; in each branch of a choice that asks: ``try:``."""
        for assigns in self._asking(statement):
            calls = [assign.value for assign in assigns]
            asked = [call for call in calls if isinstance(call, cst.Call) and self._hands_out(call)]
            if len(asked) < len(calls) or any(self._computes(call, loop) for call in asked):
                continue
            if any(self.is_unlike(_source_of(call)) for call in asked):
                continue
            target, elements = assigns[0].targets[0].target, [self._given(call) for call in asked]
            names = [name for name, _ in self._named(target, None)]
            conversions = list(self._conversions(names, loop, sizes))
            yield from conversions
            if names and not conversions:  # what is not an array yet may be a list of rows, or a list of parts
                several = isinstance(target, cst.Tuple)
                for (layout,) in _readings(elements[:1]):
                    each = Each(layout) if several and isinstance(layout, Shard) else layout
                    before = self._next(statement) if len(asked) > 1 else None
                    yield [Cut(call, self.unit, each, sizes, before=before) for call in asked]

    def _next(self, statement: cst.CSTNode) -> cst.BaseStatement | None:
        """The statement after another one in its block."""
        block = self.unit.names.block(statement)
        later = list(getattr(block, "body", ()))
        place = later.index(statement) + 1 if statement in later else len(later)
        return later[place] if place < len(later) else None

    def _asking(self, statement: cst.CSTNode) -> Iterator[list[cst.Assign]]:
        """The assignments of a statement, those together that set the same target."""
        found: dict[str, list[cst.Assign]] = {}
        for assign in _assigns(statement):
            if len(assign.targets) == 1:
                target = self.unit.names.module.code_for_node(assign.targets[0].target)
                found.setdefault(target, []).append(assign)
        yield from found.values()

    def _hands_out(self, call: cst.Call) -> bool:
        """Whether a call may hand out a batch: nothing that computes, no model, no optimizer."""
        record = self.state.calls.get(call)
        if record is None or origins(self.state.values.get(call.func), *_ROLES) or origins(record.receiver, *_ROLES):
            return False
        if origins(record.result, *_ROLES, Role.OUTPUT, Role.LOSS, Role.DEVICE):
            return False
        if method_name(call) == "next":
            return True
        if self._is_made(call):
            return False
        models = (
            node
            for function in self.reach.called(call)
            for code in self.reach.below(function)
            for node in self.reach.unit(code).names.calls
            if self.reach.unit(code).names.function(node) is code
        )
        return not any(origins(self.state.values.get(node.func), Role.MODEL) for node in models)

    def _computes(self, call: cst.Call, loop: cst.For | cst.While) -> bool:
        """Whether a call is of what the turn itself has set, or of a tensor that is made in it."""
        names = self.unit.names
        inside = set(descendants(loop.body))
        if any(node is not call and self._is_made(node) for node in nodes_in(call.func, cst.Call)):
            return True
        bindings = [names.binding(node) for node in nodes_in(call, cst.Name)]
        set_here = [d for binding in bindings if binding is not None for d in binding.definitions if d in inside]
        if method_name(call) != "next":
            return not all(self._counts(definition, inside) for definition in set_here)
        return any(self._follows(definition, inside) for definition in set_here)

    def _counts(self, definition: cst.CSTNode, inside: Container[cst.CSTNode], deep: int = 3) -> bool:
        """Whether a turn computes a number from those of the loops around it: ``end = (i + 1) * batch_size``."""
        names = self.unit.names
        assign = next(names.enclosing(definition, cst.Assign, cst.For), None)
        if not isinstance(assign, cst.Assign) or not deep:
            return False
        parts = list(descendants(assign.value))
        others = (node for node in parts if isinstance(node, cst.Call) and method_name(node) not in _NUMBERS)
        if any(others) or any(isinstance(node, cst.Subscript) for node in parts):
            return False
        bindings = (names.binding(node) for node in parts if isinstance(node, cst.Name))
        set_here = [d for binding in bindings if binding is not None for d in binding.definitions if d in inside]
        return all(self._counts(each, inside, deep - 1) for each in set_here)

    def _follows(self, definition: cst.CSTNode, inside: Container[cst.CSTNode]) -> bool:
        """Whether an iterator that a turn starts anew is made of what the turn has set."""
        names = self.unit.names
        assign = names.parents.get(names.parents.get(definition, definition))
        if not isinstance(assign, cst.Assign):
            return True
        bindings = (names.binding(node) for node in nodes_in(assign.value, cst.Name))
        return any(d in inside for binding in bindings if binding is not None for d in binding.definitions)

    def _is_made(self, call: cst.Call) -> bool:
        """Whether a table knows what a call gives."""
        record = self.state.calls.get(call)
        return record is not None and any(row(name) is not None for name in outside_names(record))

    def _given(self, call: cst.Call) -> Layout | None:
        if method_name(call) == "next" and call.args:
            return self._element(call.args[0].value)
        found = self._blank().asked(call, self.unit)
        return None if isinstance(found, Replicated) else found

    # ------------------------------------------------------------ how many rows there are

    def _sizes(self) -> frozenset[str]:
        """The names in the program that say how many rows a batch has."""
        found: set[str] = set()
        for unit in self.reach.units:
            for node in nodes_in(unit.names.module, cst.Name, cst.Attribute):
                if _is_size(node):
                    found.add(dotted(node))
        return frozenset(found - {""})


def _is_zip(source: cst.BaseExpression) -> TypeGuard[cst.Call]:
    return isinstance(source, cst.Call) and method_name(source) == "zip"


def _source_of(call: cst.Call) -> cst.BaseExpression:
    """What hands out what a call asks for."""
    return call.args[0].value if method_name(call) == "next" and call.args else call


def _assigns(statement: cst.CSTNode) -> Iterator[cst.Assign]:
    """The assignments that are a statement, or are in the branches of one that chooses."""
    if isinstance(statement, cst.SimpleStatementLine):
        yield from (small for small in statement.body if isinstance(small, cst.Assign))
    elif isinstance(statement, (cst.Try, cst.If, cst.Else, cst.ExceptHandler, cst.Finally)):
        others = [getattr(statement, name, None) for name in ("orelse", "finalbody")]
        for part in (*statement.body.body, *getattr(statement, "handlers", ()), *(o for o in others if o is not None)):
            yield from _assigns(part)


def _is_size(node: cst.Name | cst.Attribute) -> bool:
    last = node.attr.value if isinstance(node, cst.Attribute) else node.value
    return last.lower() in _SIZES


def _elements_of(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    if isinstance(node, (cst.List, cst.Tuple, cst.Set)):
        yield from (element.value for element in node.elements)
    elif isinstance(node, cst.ListComp):
        yield node.elt


def _readings(parts: Sequence[Layout | None]) -> Iterator[list[Layout]]:
    """
    The ways in which the parts of a batch may have rows.

    Each is one tensor, or a list with one element a row; or it holds tensors that have as many rows each.
    """
    if not parts:
        return
    known = [part for part in parts if isinstance(part, (Several, Each))]
    yield [mapped(part, _rows) if isinstance(part, (Several, Made)) else Shard(0) for part in parts]
    yield [mapped(part, _rows) if part in known and part is not None else Each(Shard(0)) for part in parts]


def _rows(layout: Layout) -> Layout:
    if isinstance(layout, Made) and (len(layout.sizes) > 1 or isinstance(next(iter(layout.sizes), None), cst.Integer)):
        # a single size that is a name may be a whole shape
        return Shard(0, len(layout.sizes))
    return layout if isinstance(layout, Replicated) and layout.neutral else Shard(0)
