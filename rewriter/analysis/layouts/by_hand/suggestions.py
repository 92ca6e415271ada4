"""Where the batches of a training may be cut, by where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import libcst as cst

from ....facts.torch_api.kinds import tensors
from ....facts.torch_api.loading import transfer
from ...dataflow.call_graph import Code, Reach
from ...dataflow.callees import outside_names
from ...dataflow.values import State, Unit
from ...syntax.definitions import bindings_value, plain_values
from ...syntax.names import Names
from ...syntax.nodes import dotted
from ...syntax.scopes import Binding
from ...syntax.walk import descendants, nodes_in
from ...training.training import without_gradient
from ..engine.layout import REPLICATED, Layout, Several, Shard, ShardRow, inner
from .cuts import Cut
from .data_sources import (
    chooses,
    elements_of,
    entries_of,
    holds_several,
    is_data,
    is_new,
    made_of,
    size_of_draw,
    spelled,
)
from .feeds import Feeds
from .trainings import HandTraining
from .trial import Obstacle


class Suggestions:
    """
    The places at which the batches of one training may be cut.

    Args:
        state: the solved program.
        reach: its call graph.
        training: the training.
        given: the layouts of what calls give, with some cuts taken for granted.
    """

    def __init__(
        self,
        state: State,
        reach: Reach,
        training: HandTraining,
        given: Callable[[list[Cut]], Mapping[cst.Call, Layout]],
    ) -> None:
        self.state, self.reach, self._given = state, reach, given
        self._training = training
        self.unit, self.loop = training.unit, training.loop
        self.code = training.code
        self.nodes = list(descendants(self.loop.body))
        self.inside = set(self.nodes)
        self._feeds = Feeds(state, reach, training)

    @property
    def unlike(self) -> Obstacle | None:
        """Why a batch that is handed out to the training is not suggested."""
        return self._feeds.unlike

    def all(self) -> Iterator[list[Cut]]:
        """The suggestions, the likeliest first."""
        for draws in (list(self._draws()), list(self._draws(noise=True))):
            own = [cut for cut in draws if cut.node in self.inside]
            far = [cut for cut in draws if cut.node not in self.inside]
            yield [*own, *self._calls_around(far, draws)]
            if far and all(self._only_trains(cut) for cut in far):
                yield draws
        slices = list(self._slices())
        if slices:
            yield slices
        parts = list(self._parts())
        if parts:
            yield parts
        names = list(self._whole())
        windows = [pair for pair in names if self._is_argument(pair[0])]
        for dim, tables in ((0, (names, windows)), (1, (windows,))):
            for chosen in tables:
                if chosen:
                    cuts = [
                        Cut(read, self.unit, Shard(dim), sizes)
                        for binding, sizes in chosen
                        for read in self._reads(binding)
                    ]
                    whole = self._handed_to_evaluations(cuts)
                    yield [cut for cut in cuts if cut not in whole]
                    if whole:
                        yield cuts
        noise = [cut for cut in self._draws(noise=True) if cut.node in self.inside or self._only_trains(cut)]
        asked = list(self._feeds.asked(frozenset(text for cut in noise for text in cut.sizes)))
        if asked and noise:
            yield [*asked, *noise]
        yield from self._feeds.all()

    def _draws(self, noise: bool = False) -> Iterator[Cut]:
        """Random numbers that choose rows; with ``noise`` those that are rows themselves, too."""
        for node in self.reach.runs(self.loop.body, self.unit):
            if not isinstance(node, cst.Call) or node not in self.state.calls:
                continue
            record = self.state.calls[node]
            for name in outside_names(record):
                kind = transfer(name, tensors.Random)
                size = size_of_draw(name, node)
                if kind is None or (size is None and kind.draws != "order") or self._is_evaluated(node):
                    continue
                if (noise and is_new(name) and not self._meets_others(node)) or (
                    kind.draws != "noise" and chooses(record.unit, node)
                ):
                    yield Cut(node, record.unit, Shard(0), frozenset({dotted(size)} - {""}) if size else frozenset())

    def _meets_others(self, draw: cst.Call) -> bool:
        """Noise in the loop's own code that is added to something: what that holds may be whole."""
        names = self.unit.names
        if draw not in self.inside:
            return False  # in a function whose result is cut
        around: list[cst.CSTNode] = [draw]
        statement = names.statement(draw)
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        target = small.targets[0].target if isinstance(small, cst.Assign) else None
        binding = names.binding(target) if isinstance(target, cst.Name) else None
        around += binding.reads if binding is not None else []
        return any(_is_operand(names, node) for node in around)

    def _calls_around(self, far: list[Cut], draws: list[Cut]) -> list[Cut]:
        """The calls in the loop's own code that reach some of the draws, with the layouts of what they give."""
        if not far:
            return []
        given = self._given(draws)
        drawing = {cut.unit.names.function(cut.node) for cut in far}
        found: dict[cst.Call, Cut] = {}
        sizes = frozenset(text for cut in draws for text in cut.sizes)
        for node in self.nodes:
            if not isinstance(node, cst.Call) or self.unit.names.function(node) is not self.code:
                continue
            if self._is_evaluated(node):
                continue
            if drawing.isdisjoint(code for f in self.reach.called(node) for code in self.reach.below(f)):
                continue
            layout = given.get(node)
            if layout is not None and _is_cut(layout) and not self._feeds.is_unlike(node):
                found[node] = Cut(node, self.unit, layout, sizes)
        first = {ahead.node: ahead for cut in found.values() for ahead in self._first(cut)}
        return [*found.values(), *first.values()]

    def _first(self, cut: Cut) -> Iterator[Cut]:
        """The batch that is drawn before the loop, where each turn draws the next one: ``x, y = get_batch()``."""
        names = self.unit.names
        targets = _targets(names, cut.node)
        bindings = [names.binding(target) for target in targets]
        start = names.order(self.loop)
        for definition in {d for binding in bindings if binding is not None for d in binding.definitions}:
            assign = next(names.enclosing(definition, cst.Assign), None)
            call = assign.value if isinstance(assign, cst.Assign) else None
            if not isinstance(call, cst.Call) or names.function(call) is not self.code or names.order(call) > start:
                continue
            alike = [t.value for t in _targets(names, call)] == [t.value for t in targets]
            read = any(names.order(call) < names.order(r) < start for b in bindings if b is not None for r in b.reads)
            if alike and not read and self.reach.called_at(call) == self.reach.called_at(cut.node):
                yield cut._replace(node=call)

    def _only_trains(self, cut: Cut) -> bool:
        """Whether a function is called from the loop's own code alone."""
        sites = self.reach.sites(cut.unit.names.function(cut.node))
        return all(site in self.inside and self._is_own(site) and not self._is_evaluated(site) for site in sites)

    def _slices(self) -> Iterator[Cut]:
        """``X[i : i + batch_size]`` in the loop's own code."""
        for node in self.nodes:
            own = isinstance(node, cst.Subscript) and self._is_own(node) and not self._is_evaluated(node)
            if isinstance(node, cst.Subscript) and len(node.slice) == 1 and own:
                part = node.slice[0].slice
                if isinstance(part, cst.Slice) and part.lower is not None:
                    counters = self._counters(part.lower)
                    last = part.upper
                    if counters and (last is None or counters & self._counters(last)):
                        ends = set(spelled(last) if last is not None else ()) - {b.name for b in counters}
                        yield Cut(node, self.unit, Shard(0), frozenset(ends))

    def _parts(self) -> Iterator[Cut]:
        """``X[:n]`` in the loop's own code, the same rows in every turn."""
        for node in self.nodes:
            if not isinstance(node, cst.Subscript) or not self._is_own(node) or self._is_evaluated(node):
                continue
            part, base = node.slice[0].slice, node.value
            binding = self.unit.names.binding(base) if isinstance(base, cst.Name) else None
            if len(node.slice) != 1 or not isinstance(part, cst.Slice) or part.step is not None or binding is None:
                continue
            fixed = not any(d in self.inside for d in binding.definitions) and not self._counters(part)
            rows = any(self._is_rows(binding, *made) for made in made_of(self.state, self.unit, binding)[-1:])
            if fixed and rows and not without_gradient(self.unit, node):
                yield Cut(node, self.unit, Shard(0), frozenset(spelled(part.upper) if part.upper is not None else ()))

    def _is_evaluated(self, node: cst.CSTNode) -> bool:
        return node in self.inside and self._training.evaluates(self.state, self.reach, node)

    def _counters(self, node: cst.CSTNode) -> set[Binding]:
        """The variables in an expression that the loop itself sets."""
        found = (self.unit.names.binding(n) for n in nodes_in(node, cst.Name))
        return {
            b for b in found if b is not None and any(d in self.inside or self._is_target(d) for d in b.definitions)
        }

    def _is_target(self, definition: cst.CSTNode) -> bool:
        return isinstance(self.loop, cst.For) and definition in set(descendants(self.loop.target))

    def _is_own(self, node: cst.CSTNode) -> bool:
        code = self.unit.names.function(node)
        return code is self.code or any(a in self.inside for a in self.unit.names.ancestors(code))

    def _whole(self) -> Iterator[tuple[Binding, frozenset[str]]]:
        """Tensors of data that are made before the loop and read in it."""
        seen: set[Binding] = set()
        for node in self.nodes:
            binding = self.unit.names.binding(node) if isinstance(node, cst.Name) and self._is_own(node) else None
            if binding is None or binding in seen or not binding.definitions:
                continue
            seen.add(binding)
            if any(d in self.inside for d in binding.definitions) or not self._reads(binding):
                continue
            if binding.scope.function.node not in (self.code, self.unit.names.module):
                continue
            if holds_several(self.state, self.unit, binding, set()):
                continue
            for unit, made in made_of(self.state, self.unit, binding)[-1:]:
                if self._is_rows(binding, unit, made):
                    asked = [n for call in nodes_in(made, cst.Call) for arg in call.args for n in elements_of(arg)]
                    named = [n for n in asked if isinstance(n, cst.Name)]
                    asked += [v for n in named for v in plain_values(unit.names, n) if dotted(v)]  # `bs = args.bs`
                    sizes = {text for n in asked for text in spelled(n)}
                    yield binding, frozenset(sizes - {name for name in sizes if self._is_data_name(name)})

    def _is_rows(self, binding: Binding, other: Unit, made: cst.BaseExpression) -> bool:
        """Whether a value gives a variable a tensor or an array of data."""
        given = entries_of(self.state, self.unit, binding, other, made)
        return any(is_data(self.state, *one, set()) for one in given)

    def _is_data_name(self, name: str) -> bool:
        binding = self.unit.names.scopes[self.code].lookup(name.partition(".")[0])
        values = bindings_value(self.unit.names, binding) if binding is not None else []
        return any(is_data(self.state, self.unit, value, set()) for value in values)

    def _is_argument(self, binding: Binding) -> bool:
        """Whether windows of a variable are read: ``get_batch(train_data, i)``, ``data[i : i + steps]``,
        ``data.narrow(0, i, steps)``."""
        reads = self._reads(binding)
        around = [self.unit.names.parents.get(read) for read in reads]
        if any(isinstance(one, cst.Subscript) and isinstance(one.slice[0].slice, cst.Slice) for one in around):
            return True
        methods = [one.attr.value for one in around if isinstance(one, cst.Attribute)]
        shapes = [transfer(f"torch.Tensor.{name}", tensors.Reshape) for name in methods]
        if any(shape is not None and shape.how == "narrow" for shape in shapes):
            return True
        return any(
            getattr(getattr(function, "name", None), "value", "") != "forward"
            for read in reads
            if isinstance(arg := self.unit.names.parents.get(read), cst.Arg)
            and isinstance(call := self.unit.names.parents.get(arg), cst.Call)
            for function in self.reach.called(call)
        )

    def _handed_to_evaluations(self, cuts: list[Cut]) -> list[Cut]:
        """Those that a function is given which runs models without gradients, for figures: ``score(model, X, Y)``. All
        processes evaluate all rows; what such a function gives for each row is another thing, that of a teacher."""
        around = {cut.node: call for cut in cuts if (call := self._evaluation(cut.node)) is not None}
        given = self._given(cuts) if around else {}
        figures = {call for call in around.values() if not _has_rows(given.get(call, REPLICATED))}
        return [cut for cut in cuts if around.get(cut.node) in figures]

    def _evaluation(self, read: cst.CSTNode) -> cst.Call | None:
        """The call that a value is an argument of, where all models that it runs are run without gradients."""
        arg = self.unit.names.parents.get(read)
        call = self.unit.names.parents.get(arg) if isinstance(arg, cst.Arg) else None
        if not isinstance(call, cst.Call):
            return None
        runs = list(self._models_run(call, set()))
        return call if runs and all(without_gradient(unit, node) for unit, node in runs) else None

    def _models_run(self, call: cst.Call, seen: set[Code]) -> Iterator[tuple[Unit, cst.Call]]:
        """The calls of models that a call leads to; not those in a model's own code, which run as the model does."""
        for code in self.reach.called(call):
            if code in seen:
                continue
            seen.add(code)
            unit = self.reach.unit(code)
            for node in unit.names.calls:
                if unit.names.function(node) is code and self.state.forwards.get(node):
                    yield unit, node
                elif unit.names.function(node) is code:
                    yield from self._models_run(node, seen)

    def _reads(self, binding: Binding) -> list[cst.Name]:
        reads = (read for read in binding.reads if read in self.inside and not without_gradient(self.unit, read))
        return [read for read in reads if not self._is_put_in_set(read)]

    def _is_put_in_set(self, read: cst.Name) -> bool:
        """``rest = set(range(n)) - set(chosen.tolist())``: that all rows are meant, which choose none for a loss."""
        parents = self.unit.names.parents
        node: cst.CSTNode = read
        around = parents.get(read)
        while isinstance(around, cst.Attribute) and isinstance(call := parents.get(around), cst.Call):
            node, around = call, parents.get(call)
        call = parents.get(around) if isinstance(around, cst.Arg) and around.value is node else None
        return isinstance(call, cst.Call) and dotted(call.func) in ("set", "frozenset")


def _targets(names: Names, value: cst.CSTNode) -> list[cst.Name]:
    """The variables that an expression is assigned to."""
    assign = names.parents.get(value)
    targets = [target.target for target in assign.targets] if isinstance(assign, cst.Assign) else []
    return [name for target in targets for name in nodes_in(target, cst.Name)]


def _is_operand(names: Names, node: cst.CSTNode) -> bool:
    """Whether a value is one side of an operation, as it is or with methods called on it."""
    for around in names.ancestors(node):
        if isinstance(around, cst.BinaryOperation):
            return True
        if isinstance(around, (cst.Arg, cst.BaseSmallStatement)):
            return False
    return False


def _has_rows(layout: Layout) -> bool:
    if isinstance(layout, Several):
        return any(map(_has_rows, layout.items))
    return isinstance(inner(layout), (Shard, ShardRow))


def _is_cut(layout: Layout) -> bool:
    """Whether what a call gives can be cut: tensors that all have their rows in one dimension, and nothing else."""
    found = inner(layout)
    if isinstance(layout, Several) and any(not isinstance(item, Shard) for item in layout.items):
        return False
    return isinstance(found, Shard) and not found.merged
