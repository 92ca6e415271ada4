"""Figures that a training loop shows as it goes: each process has those of its own rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import libcst as cst

from ...facts.effects import Effect, EffectKind
from ...facts.module import Count, Gather
from ...facts.roles import SHARES, TENSORS, Origin, Role
from ...facts.torch_api import questions, surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import made_names, method_name, outside_name
from ..dataflow.containers import members
from ..dataflow.open_modes import may_write
from ..dataflow.solver import Slot
from ..dataflow.trails import Trail, traces
from ..dataflow.values import Function, State, Unit, Unknown, origins
from ..syntax.definitions import bindings_value, unshadowed
from ..syntax.nodes import FunctionNode, positional
from ..syntax.scopes import Binding
from ..syntax.walk import descendants, nodes_in
from ..training.training import Training, without_gradient
from .engine.layout import is_of_rows, varies
from .epoch_totals import Total, deciding
from .joined import Joined, root_of
from .loop_layouts import layouts_of
from .losses import is_loss_name

_ON_BARS = frozenset({"set_postfix", "set_postfix_str", "set_description", "set_description_str"})
_LOGGING = frozenset("debug info warning warn error critical log".split())
_LOGGERS = ("logging", "loguru")
_TRACKED = ("add_scalar", "log")
_DEPTH = 3
"""So many variables are followed to what is collected."""
_TEXTS = (cst.SimpleString, cst.FormattedString)


def running_figures(
    state: State, reach: Reach, unit: Unit, training: Training, effects: Iterable[Effect], gathers: Iterable[Gather]
) -> Iterator[Count]:
    """Those that only the loop reads: nothing makes them whole, since nothing but a log line depends on them."""
    shown = list(dict.fromkeys(_shown(state, reach, unit, effects)))
    gathered = list(gathers)
    for loop in training.train_loops:
        if loop in unit.names.parents:
            yield from _FiguresOf(state, reach, unit, training, loop, gathered, shown).figures()


class _FiguresOf:
    """What is shown of one training loop, in it or after it."""

    def __init__(
        self,
        state: State,
        reach: Reach,
        unit: Unit,
        training: Training,
        loop: cst.CSTNode,
        gathers: list[Gather],
        shown: list[cst.Name],
    ) -> None:
        self.state, self.reach, self.unit, self.training, self.loop = state, reach, unit, training, loop
        self.inside = set(descendants(loop))
        self.layouts = layouts_of(state).loop(unit, loop) if isinstance(loop, cst.For) else None
        self.joined = Joined(reach, unit, loop, gathers)
        self.shown = [name for name in shown if not self.joined.holds(name)]
        self.collected: list[Total] = []

    def figures(self) -> Iterator[Count]:
        """What is collected and shown, and then what is of a step alone."""
        totals = (total for kept in self.joined.kept.values() for total in kept)
        self.collected = [total for total in totals if self._is_own_total(total)]
        read = {text for name in self.shown if name in self.inside for text in self._read(name)}
        told: set[str] = set()
        for total in self.collected:
            text = self._text(total.kept_in)
            if text not in told and any(_is_part(text, other) or _is_part(other, text) for other in read):
                told.add(text)
                yield Count(total.node, "running", text)
        yield from self._of_steps(told)
        yield from self._left_behind(told)

    # Collected --------------------------------------------------------------------------------------------------------

    def _is_own_total(self, total: Total) -> bool:
        """Whether something of this process's own rows is added to what is kept from step to step."""
        if isinstance(total.node, cst.AugAssign) and not isinstance(total.node.operator, cst.AddAssign):
            return False
        root = root_of(total.place)
        binding = self.unit.names.binding(root) if root is not None else None
        if binding is None or self.joined.joins(total.node) or self._is_evaluated(total.node):
            return False
        body = self.loop.body if isinstance(self.loop, (cst.For, cst.While)) else None
        own = set(descendants(total.node))
        if any(self.unit.names.block(d) is body and d not in own for d in _set(self.unit, binding)):
            return False  # it begins anew in each step
        places = [part for by in deciding(self.unit, self.loop, total) for part in descendants(by)]
        names = [n for part in (*total.value, *places) for n in nodes_in(part, cst.Name)]
        shares = any(origins(self.state.values.get(part), *SHARES) for part in (*total.value, *places))
        return (shares or any(map(self._is_of_rows, total.value))) and not any(map(self.joined.holds, names))

    def _read(self, name: cst.Name, depth: int = 0) -> Iterator[str]:
        """The places that a shown name reads, through what the loop computes for a line: ``mean = total / count``."""
        chain: cst.CSTNode = name
        parents = self.unit.names.parents
        while isinstance(above := parents.get(chain), (cst.Attribute, cst.Subscript)) and above.value is chain:
            chain = above
        call = parents.get(chain)
        if isinstance(call, cst.Call) and call.func is chain and isinstance(chain, cst.Attribute):
            chain = chain.value  # `table.sum()` reads the table
        yield self._text(chain)
        binding = self.unit.names.binding(name)
        if binding is None or depth == _DEPTH:
            return
        here = [definition for definition in binding.definitions if definition in self.inside]
        for value in bindings_value(self.unit.names, binding, here):
            parts = list(descendants(value))
            if self.training.forwards.keys().isdisjoint(parts):
                for part in parts:
                    if isinstance(part, cst.Name) and part.value != name.value:
                        yield from self._read(part, depth + 1)

    def _text(self, node: cst.CSTNode) -> str:
        return self.unit.names.module.code_for_node(node)

    # Of a step --------------------------------------------------------------------------------------------------------

    def _of_steps(self, told: set[str]) -> Iterator[Count]:
        """What the loop shows of the batch in hand: a loss, an accuracy."""
        totals = frozenset(told)
        sums = (total.node for total in self.collected if isinstance(total.node, (cst.AugAssign, cst.Assign)))
        inside = self.inside - {n for node in sums for n in descendants(node)}
        for name in self.shown:
            if name not in inside or name.value in told or self._is_written_out(name):
                continue
            if not self._is_own(name) and not self._is_figure(name):
                continue
            if not any(_is_part(text, other) for text in self._read(name) for other in totals):
                told.add(name.value)
                yield Count(name, "figure", name.value)

    def _is_written_out(self, name: cst.Name) -> bool:
        """Whether a variable is a dict that is written out: its parts are what is shown."""
        binding = self.unit.names.binding(name)
        values = bindings_value(self.unit.names, binding) if binding is not None else []
        return any(isinstance(value, cst.Dict) for value in values)

    def _is_figure(self, name: cst.Name) -> bool:
        """Whether a variable holds what the rows of this process's batch make together: a loss, a mean, a PSNR."""
        if is_loss_name(self.state, self.training, self.unit, name):
            return self._is_of_loop(list(self._tensors(name)))
        return self._is_of_rows(name)

    def _is_of_rows(self, value: cst.BaseExpression) -> bool:
        """Whether a value is computed from the rows of this process's batch."""
        return self.layouts is not None and is_of_rows(self.layouts.value(value))

    def _left_behind(self, told: set[str]) -> Iterator[Count]:
        """What is shown after the loop of its last batches: the last loss, a moving average of the losses."""
        for name in self.shown:
            binding = self.unit.names.binding(name) if name not in self.inside and name.value not in told else None
            after = binding is not None and self.unit.names.order(name) > self.unit.names.end(self.loop)
            own = binding is not None and any(
                d in self.inside and d in unshadowed(self.unit.names, binding, name) for d in _set(self.unit, binding)
            )
            if binding is not None and after and own and (self._is_own(name) or self._holds_figure(binding)):
                told.add(name.value)
                yield Count(name, "figure", name.value)

    def _holds_figure(self, binding: Binding) -> bool:
        return self.layouts is not None and self.layouts.holds_figure(binding)

    # Whose rows -------------------------------------------------------------------------------------------------------

    def _is_own(self, name: cst.Name) -> bool:
        """Whether a name holds a loss or a number of the loop's own rows, and not of those of an evaluation."""
        held = origins(self.state.values.get(name), Role.LOSS, Role.LOCAL) or self._given(name)
        return bool(held) and self._is_of_loop(list(self._tensors(name))) and not self._is_of_evaluation(name)

    def _is_of_evaluation(self, name: cst.Name, depth: int = 0) -> bool:
        """Whether a name is computed from what an evaluation alone collects: ``meter.average()``."""
        binding = self.unit.names.binding(name)
        if binding is None or depth == _DEPTH:
            return False
        kept = [total for totals in self.joined.kept.values() for total in totals]
        own = [t for t in kept if (root := root_of(t.place)) is not None and self.unit.names.binding(root) is binding]
        if own:
            return all(self._is_evaluated(total.node) for total in own)
        loops = (loop for d in binding.definitions for loop in self.unit.names.enclosing(d, cst.For))
        iterated = [loop.iter for loop in loops if isinstance(loop, cst.For) and self._sets(loop, binding)]
        values = [*bindings_value(self.unit.names, binding), *iterated]
        read = [part for value in values for part in nodes_in(value, cst.Name)]
        of_it = [part for part in read if self._is_of_evaluation(part, depth + 1)]
        others = (part for part in read if part not in of_it)
        return bool(of_it) and not any(origins(self.state.values.get(part), *SHARES) for part in others)

    def _sets(self, loop: cst.For, binding: Binding) -> bool:
        return any(part in binding.definitions for part in descendants(loop.target))

    def _given(self, name: cst.Name) -> list[Origin]:
        """The losses and numbers in a container that a function gives: of one that is written out its parts count."""
        slot, binding = self.state.values.get(name), self.unit.names.binding(name)
        values = bindings_value(self.unit.names, binding) if binding is not None else []
        if slot is None or not any(isinstance(value, cst.Call) for value in values):
            return []
        inside = members(self.state, slot)
        self.state.solver.run()
        return origins(inside, Role.LOSS, Role.LOCAL)

    def _tensors(self, name: cst.Name) -> Iterator[Origin]:
        """The tensors from which a variable was computed, also in the functions that gave it."""
        pending: list[tuple[Unit, cst.CSTNode]] = [(self.unit, name)]
        seen = set[Binding | cst.CSTNode]()
        while pending:
            unit, node = pending.pop()
            for part in descendants(node):
                yield from origins(self.state.values.get(part), *TENSORS)
                binding = unit.names.binding(part) if isinstance(part, cst.Name) else None
                if binding is not None and binding not in seen:
                    seen.add(binding)
                    pending += [(unit, value) for value in bindings_value(unit.names, binding)]
                call = part if isinstance(part, cst.Call) and part not in self.training.forwards else None
                for function in self.reach.called(call) if call is not None else ():
                    if function not in seen:
                        seen.add(function)
                        home = self.reach.unit(function)
                        given = home.names.returns.get(function, ())
                        pending += [(home, r.value) for r in given if r.value is not None]

    def _is_of_loop(self, tensors: list[Origin]) -> bool:
        """What an evaluation computes is no figure of the loop: it is gathered there, or a finding says why not."""
        made = [o for o in tensors if o.role is not Role.BATCH and not isinstance(o.node, cst.Module)]
        if made:  # outputs of layers in other files are one thing, whose node says nothing of where it was made
            return any(not self._is_evaluated(o.node) for o in made)
        read = {loader for loop in self.training.eval_loops for loader in self.state.loaders.get(loop, ())}
        own = self.state.loaders.get(self.loop, {})
        return not tensors or any(o.source is None or o.source in own or o.source not in read for o in tensors)

    def _is_evaluated(self, node: cst.CSTNode) -> bool:
        unit = next((unit for unit in self.state.units.values() if node in unit.names.parents), None)
        if unit is None:
            return False
        return any(around in self.training.eval_loops for around in unit.names.ancestors(node)) or (
            isinstance(node, cst.Call) and without_gradient(unit, node) and self._is_of_all_rows(node)
        )

    def _is_of_all_rows(self, call: cst.Call) -> bool:
        """Whether a model is run on what all processes have: ``net(X)`` of the whole data, between steps on shards."""
        return self.layouts is not None and not varies(self.layouts.value(call))


def _set(unit: Unit, binding: Binding) -> Iterator[cst.CSTNode]:
    """Where a variable is given a value of its own."""
    return (d for d in binding.definitions if not isinstance(unit.names.parents.get(d), cst.AugAssign))


def _is_part(text: str, whole: str) -> bool:
    """Whether a place is another, or an attribute or an entry of it: ``meter.avg`` of ``meter``."""
    return text == whole or text.startswith((f"{whole}.", f"{whole}["))


def _shown(state: State, reach: Reach, unit: Unit, effects: Iterable[Effect]) -> Iterator[cst.Name]:
    """
    The names in what is printed, logged or saved, and in the texts that are made for it.

    So is what a function is handed that logs or prints what it is given.
    """
    lines: list[cst.CSTNode] = []
    for effect in effects:
        if effect.node in unit.names.parents and effect.kind in (EffectKind.PRINT, EffectKind.CONSOLE):
            lines.append(line_of(unit, effect))
    for call in unit.names.calls:
        if (
            method_name(call) in _ON_BARS
            or is_logged(state, call)
            or _is_saved(state, call)
            or _hands_on(state, reach, call)
        ):
            lines.append(call)
    for line in lines:
        for name in nodes_in(line, cst.Name):
            yield name
            binding = unit.names.binding(name)
            for value in bindings_value(unit.names, binding) if binding is not None else ():
                parts = list(descendants(value))
                if any(isinstance(part, _TEXTS) for part in parts):
                    yield from (n for n in parts if isinstance(n, cst.Name))


def _is_saved(state: State, call: cst.Call) -> bool:
    record = state.calls.get(call)
    return record is not None and outside_name(record) == "torch.save"


def _hands_on(state: State, reach: Reach, call: cst.Call) -> bool:
    """Whether a call hands something to a function of the script that logs or prints what it is given."""
    functions = reach.called(call) if call.args else []
    return any(state.once((_hands_on, f), partial(_shows_given, state, reach.unit(f), f)) for f in functions)


def _shows_given(state: State, unit: Unit, function: FunctionNode) -> bool:
    """Whether a function logs or prints what it is given: itself, an entry of it, or a value computed from it."""
    scope, method = unit.names.scopes[function], isinstance(unit.names.within[function].node, cst.ClassDef)
    known = {scope.bindings[param.name.value] for param in positional(function)[method:]}
    parts = list(descendants(function.body))
    lines = [part for part in parts if isinstance(part, cst.Call) and (is_logged(state, part) or _prints(state, part))]
    size = 0
    while lines and size < len(known):
        size = len(known)
        reads = {read for binding in known for read in binding.reads}
        for part in parts:
            if isinstance(part, cst.For):
                source, targets = part.iter, [part.target]
            elif isinstance(part, cst.Assign):
                source, targets = part.value, [target.target for target in part.targets]
            else:
                continue
            if not reads.isdisjoint(descendants(source)):
                names = (n for target in targets for n in nodes_in(target, cst.Name))
                known.update(b for name in names if (b := unit.names.binding(name)) is not None)
    reads = {read for binding in known for read in binding.reads}
    return any(not reads.isdisjoint(descendants(arg)) for line in lines for arg in line.args)


def _prints(state: State, call: cst.Call) -> bool:
    record = state.calls.get(call)
    return record is not None and outside_name(record) == "builtins.print"


def line_of(unit: Unit, effect: Effect) -> cst.CSTNode:
    """What an effect shows: of a print its whole call, of which the effect names the function."""
    return unit.names.parents[effect.node] if effect.kind is EffectKind.PRINT else effect.node


def is_logged(state: State, call: cst.Call) -> bool:
    """Whether a call gives a line to a logger, a figure to a tracker, or something to a file that is open."""
    record = state.calls.get(call)
    if record is None or any(isinstance(thing, Function) for thing in record.callees):
        return False
    called, last = outside_name(record), method_name(call)
    held = record.receiver.things if record.receiver is not None else ()
    made = [thing for thing in held if isinstance(thing, Unknown)]
    names = [name.rpartition(".")[0] for name in made_names(record)]
    if last in _LOGGING and any(name.partition(".")[0] in _LOGGERS for name in (called, *names)):
        return True
    if any(questions.tracker(name) is not None for name in names) or _is_open(record.receiver):
        return True
    makers = [thing.node for thing in made if isinstance(thing.node, cst.Call)]  # csv.writer(file)
    if any(_is_open(state.values.get(arg.value)) for one in (call, *makers) for arg in one.args):
        return True
    start = f"{called.rpartition('.')[0]}.init"  # wandb.log
    return last.startswith(_TRACKED) and (surroundings.writes(called) or questions.tracker(start) is not None)


def _is_open(slot: Slot | None) -> bool:
    """Whether something is a file that is, or may be, open for writing."""
    return any(isinstance(trace.node, cst.Call) and may_write(trace.node, 1) for trace in traces(slot, Trail.FILE))
