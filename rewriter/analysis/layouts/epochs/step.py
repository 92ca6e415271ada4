"""What the step of a training loop computes its totals from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import libcst as cst

from ....facts.container_methods import adds_in_order
from ....facts.roles import SHARES, TENSORS, Role
from ....facts.torch_api.kinds.tensors import ToHost
from ....facts.torch_api.loading import transfer
from ...dataflow.call_graph import Reach
from ...dataflow.callees import method_name
from ...dataflow.changed_tables import changed_elsewhere, changes
from ...dataflow.met import Met
from ...dataflow.values import State, Unit, origins
from ...syntax.definitions import bindings_value
from ...syntax.scopes import Binding
from ...syntax.walk import descendants, nodes_in
from ...training.schedules import follows_batches
from ...training.training import Training
from ..engine.layout import (
    Layout,
    Partial,
    Several,
    ShardRow,
    ShardSize,
    Unclear,
    holds_figure,
    inner,
    is_container,
    reduces,
    varies,
)
from ..epoch_totals import Total, deciding
from ..joined import by_script
from ..loop_layouts import layouts_of
from ..loop_step import bound, bound_by, plain
from ..losses import read_off
from .losses import Losses

_OF_TABLES = ("items", "values")
EXPRESSIONS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)


class EpochStep:
    """The statements that a training loop runs for each batch. ``split``: as for ``averages``."""

    def __init__(
        self,
        state: State,
        unit: Unit,
        reach: Reach,
        training: Training,
        loop: cst.For | cst.While | cst.CompFor,
        *,
        split: bool = False,
    ) -> None:
        self.state, self.unit, self.reach, self.training, self.loop = state, unit, reach, training, loop
        self.split = split
        self.inside = set(descendants(loop))
        self.layouts = layouts_of(state).loop(unit, loop)
        self.by_hand = layouts_of(state).is_by_hand(loop)
        self.statements = [] if isinstance(loop, cst.CompFor) else plain(loop.body)
        self.losses = Losses(state, unit, reach, training, self.inside, self.layouts)
        self._sources: dict[Binding, dict[Binding, None]] = {}
        self._numbers: dict[Binding, dict[Binding, None]] = {}

    def is_of_batch(self, total: Total) -> bool:
        """Whether what is added, or where and how often, depends on the rows of this process; what an evaluation
        between the steps collects is the evaluation's."""
        if any(around in self.training.eval_loops for around in self.unit.names.ancestors(total.node)):
            return False
        if any(self.local(v) or self.is_number(v) for v in total.value):
            return True
        return any(self.decides(d) for d in self._deciding(total))

    def local(self, value: cst.BaseExpression) -> bool:
        if origins(self.state.values.get(value), *SHARES):
            return True
        return self.by_hand and self.layouts.depends_on_rows(value)  # of which no value has a role

    def _reads_local(self, value: cst.BaseExpression) -> bool:
        return any(self.local(part) for part in descendants(value) if isinstance(part, EXPRESSIONS))

    def is_number(self, value: cst.BaseExpression) -> bool:
        """Whether a value is a number, or a container with some, that code of the program computes from the rows of the
        batch."""
        layout = self.layouts.value(value)
        if is_container(layout) and holds_figure(layout):
            return True
        layout = inner(layout)
        if isinstance(layout, Unclear):
            return layout.joint
        return isinstance(layout, (ShardRow, ShardSize)) or (isinstance(layout, Partial) and layout.host is True)

    def _deciding(self, total: Total) -> Iterator[cst.BaseExpression]:
        return deciding(self.unit, self.loop, total)

    def decides(self, part: cst.BaseExpression) -> bool:
        """Whether a place, a condition or the turns of a loop depend on the rows of this process."""
        return self._reads_local(part) and varies(self.layouts.value(part))

    def _turns(self, total: Total) -> cst.For | None:
        """The loop over the rows of a batch, in plain sight, that a total is in: what is gathered before it gives it
        the rows of all."""
        place = self.places.get(total.node)
        around = self.statements[place] if place is not None else None
        if around is total.node or not isinstance(around, cst.For):
            return None
        return around if self.decides(around.iter) else None

    def chosen_locally(self, total: Total) -> bool:
        """Whether one process may collect what another passes over: nothing may be reduced or gathered there."""
        turns = self._turns(total)
        around = self.unit.names.enclosing(total.node, cst.If, cst.While)
        tests = [a.test for a in around if isinstance(a, (cst.If, cst.While)) and a in self.inside]
        local = [test for test in tests if self._reads_local(test)]
        if turns is None:
            parts = [part for part in self._deciding(total) if part not in tests and not self._goes_alike(part)]
            return bool(local) or any(map(self._holds_figure, parts)) or any(map(self._filled_locally, parts))
        rows = all(isinstance(inner(self.layouts.value(test)), ShardRow) for test in local)
        return not rows or self._holds_figure(turns)

    def _goes_alike(self, part: cst.BaseExpression) -> bool:
        """Whether a loop goes through the same figures on all processes, of one kind, ``for name, value in
        figures.items()``: which ones there are is written out, and no condition adds one."""
        around = self.unit.names.parents.get(part)
        if not isinstance(around, cst.For) or part is not around.iter:
            return False
        if isinstance(part, cst.Call) and isinstance(part.func, cst.Attribute):
            part = part.func.value if method_name(part) in _OF_TABLES else part
        held = self.layouts.container(part)
        return isinstance(held, Several) and isinstance(inner(held), Partial) and not self._filled_by_others(part)

    def _filled_by_others(self, table: cst.BaseExpression) -> bool:
        """Whether a function that gets a table or a list adds something to it."""
        slot = self.state.values.get(table)
        return slot is not None and not changed_elsewhere(self.state, self.reach.units).isdisjoint(slot.things)

    def _filled_locally(self, part: cst.BaseExpression) -> bool:
        """Whether a loop goes through a table or a list with figures to which one process adds what another does not:
        ``if mask.any(): figures["far"] = far``."""
        around = self.unit.names.parents.get(part)
        if not isinstance(around, cst.For) or part is not around.iter:
            return False
        names = [name for name in nodes_in(part, cst.Name) if holds_figure(self.layouts.container(name))]
        if any(map(self._filled_by_others, names)):
            return True
        bindings = {b for name in names if (b := self.unit.names.binding(name)) is not None}
        added = (read for b in bindings for read in b.reads if read in self.inside and changes(self.unit, read))
        conditions = (a.test for read in added for a in self.unit.names.enclosing(read, cst.If, cst.While))
        return any(test in self.inside and self._reads_local(test) for test in conditions)

    def _holds_figure(self, node: cst.CSTNode) -> bool:
        """Whether a loss, or another figure of the batch as it is before a node, is read there."""
        read = nodes_in(node, cst.Name)
        bindings = (b for n in read if (b := self.unit.names.binding(n)) is not None and self._set_here(b, node))
        return any(self.layouts.holds_figure(b) or origins(self.state.binding(b), Role.LOSS) for b in bindings)

    def _set_here(self, binding: Binding, node: cst.CSTNode) -> bool:
        """Whether a variable gets a new value in a turn of the loop, outside a node of it."""
        below = set(descendants(node))
        anew = (d for d in binding.definitions if d in self.inside and d not in below)
        return any(not isinstance(self.unit.names.parents.get(d), cst.AugAssign) for d in anew)

    def added(self, total: Total) -> list[cst.Name]:
        return [n for v in total.value for n in nodes_in(v, cst.Name)]

    def names(self, total: Total) -> list[cst.Name]:
        """What a total is computed from: all that a loop over the rows reads, if it is in one."""
        turns = self._turns(total)
        if turns is None:
            entries = (p for p in self._deciding(total) if self.decides(p))
            return [*self.added(total), *(n for p in entries for n in nodes_in(p, cst.Name))]
        names = nodes_in(turns, cst.Name)
        return [n for n in names if (b := self.unit.names.binding(n)) is not None and self._set_here(b, turns)]

    def tensors_in(self, total: Total) -> list[Binding]:
        """The variables with tensors of the batch, losses apart, from which something collected is computed."""
        found: dict[Binding, None] = {}
        settled = {n for v in total.value if self.losses.made_by_functions(v) for n in descendants(v)}
        for name in (n for n in self.names(total) if n not in settled):
            binding = self.unit.names.binding(name)
            if binding is None or self.losses.behind(name) or self.losses.loss_entry(name) is not None:
                continue
            if self.is_of_tensors(binding):
                behind = {} if self.has_rows(binding) else self.behind_number(binding)
                found.update(behind or {binding: None})
            elif origins(self.state.binding(binding), Role.LOCAL):
                found.update(self.behind_number(binding))
        return list(found)

    def is_of_tensors(self, binding: Binding) -> bool:
        """Whether a variable holds a tensor of the batch, or several."""
        return bool(origins(self.state.binding(binding), *TENSORS)) or self.layouts.is_tensor(binding)

    def behind_number(self, binding: Binding) -> dict[Binding, None]:
        """The tensors of the batch from which a number (an accuracy, a count) was computed in this step, also by way of
        other numbers: ``hits = (guesses == y).sum().item()``, and then ``accuracy = hits / len(y)``."""
        sources = (source for number in self.numbers_behind(binding) for source in self.sources(number))
        return {source: None for source in sources if self.is_of_tensors(source)}

    def numbers_behind(self, binding: Binding) -> dict[Binding, None]:
        """A number, and the numbers of this step from which it was computed."""
        if binding in self._numbers:
            return self._numbers[binding]
        found = self._numbers[binding] = {binding: None}
        pending = [binding]
        while pending:
            for source in self.sources(pending.pop()):
                slot = self.state.binding(source)
                if source not in found and origins(slot, Role.LOCAL) and not self.is_of_tensors(source):
                    found[source] = None
                    pending.append(source)
        return found

    def sources(self, binding: Binding) -> Iterable[Binding]:
        """The other variables in the plain statements of a step that set a variable."""
        if binding not in self._sources:
            read = (n for place in self.setters.get(binding, ()) for n in nodes_in(self.statements[place], cst.Name))
            found = dict.fromkeys(b for name in read if (b := self.unit.names.binding(name)) is not None)
            found.pop(binding, None)
            self._sources[binding] = found
        return self._sources[binding]

    @cached_property
    def places(self) -> dict[cst.CSTNode, int]:
        """The number of the statement of a step that each node is in."""
        return {node: place for place, one in enumerate(self.statements) for node in descendants(one)}

    @cached_property
    def setters(self) -> dict[Binding, list[int]]:
        """The numbers of the statements whose plain assignments set a variable."""
        found: dict[Binding, list[int]] = {}
        for place, statement in enumerate(self.statements):
            for binding in dict.fromkeys(bound(self.unit, statement)):
                found.setdefault(binding, []).append(place)
        return found

    @cached_property
    def last_of_training(self) -> int:
        """The number of the last statement that runs a model, or sets a loss."""
        forwards = self.training.forwards
        met = self.state.once((EpochStep, self.training), lambda: Met(self.reach, forwards))
        losses = {b for b in self.setters if origins(self.state.binding(b), Role.LOSS)}
        places = [place for place, one in enumerate(self.statements) if met.first(one) is not None]
        return max([*places, *(place for b in losses for place in self.setters[b])], default=-1)

    def has_rows(self, binding: Binding) -> bool:
        """Whether a tensor's first dimension counts the rows of the batch: it is the batch, the model's output for it,
        or computed row by row from these."""
        if self.layouts.has_chosen(binding) or self.layouts.is_one_number(binding):
            return False
        if isinstance(self.loop, cst.For) and binding in bound_by(self.unit, self.loop.target):
            return True
        return not self.layouts.holds_figure(binding) and self.layouts.is_rows(binding)

    def is_weighed(self, total: Total) -> bool:
        """Whether the number of rows weighs what is added: ``loss.item() * len(y)``, ``meter.update(mean, len(y))``."""
        parts = (part for value in total.value for part in descendants(value) if isinstance(part, EXPRESSIONS))
        weighed = any(isinstance(inner(self.layouts.value(part)), ShardSize) for part in parts)
        return weighed and not self.is_rated(total)

    def is_rated(self, total: Total) -> bool:
        """Whether a loss is divided by the number of rows of its batch, and nothing else of the batch is in what is
        added. It is joined as the loss is: the number is about the same on all processes, while joined rows are
        several times as many."""
        divisors: list[cst.BaseExpression] = []
        for value in total.value:
            for node in nodes_in(value, cst.BinaryOperation):
                if isinstance(node.operator, cst.Divide):
                    divisors += [node.right] if isinstance(inner(self.layouts.value(node.right)), ShardSize) else []
        counted = {node for divisor in divisors for node in descendants(divisor)}
        names = [name for name in self.names(total) if name not in counted]
        others = (name for name in names if not self.losses.is_loss(name) and not self.losses.read_off(name))
        return bool(divisors) and not any(self.local(name) for name in others)

    def fills_list(self, total: Total) -> bool:
        """Whether entries are added to a list: ``rows.append(row)``, ``rows.extend(part)``, ``rows += part``."""
        if isinstance(total.node, cst.Call):
            return adds_in_order(method_name(total.node))
        return total.joins or (isinstance(total.place, cst.Name) and any(map(_is_list, self.made_before(total))))

    def made_before(self, total: Total) -> list[cst.BaseExpression]:
        """What a total is given before its loop, each part of ``[0] * classes``."""
        binding = self.unit.names.binding(total.kept_in) if isinstance(total.kept_in, cst.Name) else None
        before = [d for d in binding.definitions if d not in self.inside] if binding is not None else []
        values = bindings_value(self.unit.names, binding, before) if binding is not None else []
        parts = ((v.left, v.right) if isinstance(v, cst.BinaryOperation) else (v,) for v in values)
        return [part for pair in parts for part in pair]

    def lists_rows(self, total: Total) -> bool:
        """Whether a list is given rows of each batch: as many entries as the batch has rows, or all of them as one."""
        if not self.fills_list(total):
            return False
        values = [entry for value in total.value for entry in _entries(value)]
        layouts = [inner(self.layouts.value(value)) for value in values]
        number = any(isinstance(one, (Partial, ShardSize)) for one in layouts)
        return not number and not any(read_off(value) is not None for value in values)

    def lists_figures(self, total: Total) -> bool:
        """Whether a list is given one number for each batch, as far as that can be told."""
        if any(_gives_several(value) for value in total.value):
            return False
        layouts = [inner(self.layouts.value(value)) for value in total.value]
        return not self.lists_rows(total) or any(reduces(one) or _is_number(one) for one in layouts)

    def adds_whole(self, total: Total) -> bool:
        """``total += score`` of what the model gave, as it is: a figure of its own, and not one for each row."""
        if isinstance(total.node, cst.Call):
            return False
        name = read_off(total.value[0]) or total.value[0]
        binding = self.unit.names.binding(name) if isinstance(name, cst.Name) else None
        return binding is not None and binding in self.tensors_in(total)

    def has_fewer(self) -> bool:
        """Whether a process has fewer batches than the script, and the loop ends with them."""
        whole = not self.split and not self.by_hand and bool(self.reach.loaders(self.loop))
        return whole and follows_batches(self.reach, self.loop)

    def done_already(self) -> bool:
        """Whether the script joins figures of the loop itself; a condition that is decided together says nothing of
        what is collected."""
        tests = (node.test for node in self.inside if isinstance(node, (cst.If, cst.While)))
        decided = {part for test in tests for part in descendants(test)}
        return by_script(self.state, (node for node in self.inside if node not in decided))


def _is_list(value: cst.BaseExpression) -> bool:
    return isinstance(value, (cst.List, cst.ListComp))


def _entries(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The entries of a list that is written out, ``[loss.item()]``; or a value as it is."""
    return [element.value for element in value.elements] if isinstance(value, cst.List) else [value]


def _is_number(layout: Layout) -> bool:
    """Whether several rows have gone into a value, and it has none for each of them: a score of the batch."""
    return isinstance(layout, Unclear) and (layout.figure or layout.joint) and not layout.compared


def _gives_several(value: cst.BaseExpression) -> bool:
    """Whether a value is a tensor, as a list, an array or a tensor on the CPU: ``out.tolist()``."""
    read = transfer(f"torch.Tensor.{method_name(value)}", ToHost) if isinstance(value, cst.Call) else None
    return read is not None and read.gives != "number"
