"""
Totals of training: losses and counts that are collected over an epoch's steps and read after the loop.

A loss is averaged over the processes where it is collected. Whatever else is collected (hits, counts) is computed
from tensors of the batch: these are gathered before the first statement that collects, when everything that the
step computes from them is done by then. What is collected and read inside the loop only, for a log line every few
steps, stays that of the process that prints it.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.module import Form, Gather, Side
from ...facts.roles import SHARES, TENSORS, Role
from ...findings import Finding, Severity
from ..dataflow.call_graph import Reach
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value
from ..syntax.scopes import Binding
from ..syntax.walk import descendants
from ..training.gradient_path import GradientPath
from ..training.training import Training
from .batch_shapes import batch_sizes, divided_by
from .epoch_totals import Total, Totals
from .loop_step import bound, bound_by, entry, is_loss_entry, plain
from .losses import assigned, is_loss_name, read_off, reduced
from .padding import ragged
from .reductions import reduction_of
from .row_counts import counted
from .rowwise import by_rows

_EXPRESSIONS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)


def averages(state: State, unit: Unit, reach: Reach, training: Training, path: GradientPath) -> list[Gather | Finding]:
    """What must be made whole in the training loops of a module; what is trained on stays as it is."""
    found: list[Gather | Finding] = []
    for loop in training.train_loops:
        if loop in unit.names.parents and isinstance(loop, (cst.For, cst.While)):
            found.extend(_Loop(state, unit, reach, training, loop).answers())
        elif loop in unit.names.parents and isinstance(loop, cst.CompFor):
            found.extend(_Loop(state, unit, reach, training, loop).collected())
    return [_stays(a.node) if isinstance(a, Gather) and path.cuts(unit, a) else a for a in found]


class _Loop:
    """One training loop."""

    def __init__(
        self, state: State, unit: Unit, reach: Reach, training: Training, loop: cst.For | cst.While | cst.CompFor
    ) -> None:
        self.state, self.unit, self.reach, self.training, self.loop = state, unit, reach, training, loop
        self.inside = set(descendants(loop))
        self.totals = Totals(state, unit, reach, loop)
        self.statements = [] if isinstance(loop, cst.CompFor) else plain(loop.body)

    def collected(self) -> Iterator[Gather | Finding]:
        """The losses of ``[step(batch) for batch in loader]``."""
        around = self.unit.names.parents[self.loop]
        if isinstance(around, (cst.ListComp, cst.SetComp, cst.GeneratorExp)) and self._local(around.elt):
            found = list(self._returned(around.elt, "collected over the epoch, by each process for its own shard"))
            yield from found
            if not found:
                yield _stays(around)

    def answers(self) -> Iterator[Gather | Finding]:
        """The reductions and the gather of this loop, or a finding for what stays local."""
        totals = [t for t in self.totals.among(self.statements) if any(self._local(v) for v in t.value)]
        if not totals or self._done_already():
            return
        alone = [t for t in totals if self._chosen_locally(t)]
        yield from (_stays(t.node) for t in alone)
        totals = [t for t in totals if t not in alone]
        yield from {gather.node: gather for total in totals for gather in self._losses(total)}.values()
        others = [t for t in totals if self._tensors_in(t)]
        bare = [t for t in others if self._adds_whole(t)]
        yield from (_stays(t.node) for t in bare)
        others = [t for t in others if t not in bare]
        if not others:
            return
        names = list(dict.fromkeys(b for t in others for b in self._tensors_in(t)))
        first = self._first(others)
        if first is None or not all(self._has_rows(b) for b in names) or self._cuts(first, names) or self._rates(first):
            yield from (_stays(t.node) for t in others)
            return
        because = "totals of the epoch are computed from them, and each process holds only its shard"
        behind = {n for s in self.statements[self.statements.index(first) :] for n in descendants(s)}
        names, counts = counted(self.state, self.unit, self.training, self.loop, names, behind)
        gather = Gather(first, tuple(b.name for b in names), because, side=Side.BEFORE, counts=counts)
        if ragged(self.state, self.reach, self.unit, self.loop, [gather]):
            yield from (_stays(t.node) for t in others)
        else:
            yield gather

    def _chosen_locally(self, total: Total) -> bool:
        """Whether one process may collect what another passes over: nothing may be reduced or gathered there."""
        around = self.unit.names.enclosing(total.node, cst.If, cst.While)
        tests = (a.test for a in around if isinstance(a, (cst.If, cst.While)) and a in self.inside)
        return any(self._local(part) for test in tests for part in descendants(test) if isinstance(part, _EXPRESSIONS))

    def _adds_whole(self, total: Total) -> bool:
        """``total += score`` of what the model gave, as it is: a figure of its own, and not one for each row."""
        if isinstance(total.node, cst.Call):
            return False
        name = read_off(total.value[0]) or total.value[0]
        binding = self.unit.names.binding(name) if isinstance(name, cst.Name) else None
        return binding is not None and binding in self._tensors_in(total)

    def _cuts(self, first: cst.CSTNode, names: list[Binding]) -> bool:
        """Whether rows are cut off by position: ``y[ids[:seeds]]`` means other rows when those of all are joined."""
        for statement in self.statements[self.statements.index(first) :]:
            for node in descendants(statement):
                part = node.slice[0].slice if isinstance(node, cst.Subscript) else None
                if isinstance(part, cst.Slice) and (part.lower is not None or part.upper is not None):
                    read = {self.unit.names.binding(n) for n in descendants(node) if isinstance(n, cst.Name)}
                    if not read.isdisjoint(names):
                        return True
        return False

    def _rates(self, first: cst.CSTNode) -> bool:
        """Whether the step divides something by its batch size, of which the rows of all are several."""
        sizes = batch_sizes(self.reach.loaders(self.loop))
        return any(divided_by(one, sizes) for one in self.statements[self.statements.index(first) :])

    def _has_rows(self, binding: Binding) -> bool:
        """Whether a tensor's first dimension counts the rows of the batch: it is the batch, the model's output for it,
        or computed row by row from these."""
        if isinstance(self.loop, cst.For) and binding in bound_by(self.unit, self.loop.target):
            return True
        makers = [v for v in bindings_value(self.unit.names, binding) if v in self.inside]
        return bool(makers) and all(by_rows(self.state, self.training, value) for value in makers)

    def _local(self, value: cst.BaseExpression) -> bool:
        return bool(origins(self.state.values.get(value), *SHARES))

    def _done_already(self) -> bool:
        attributes = (n for n in self.inside if isinstance(n, cst.Attribute))
        names = ("reduce", "gather", "gather_for_metrics")
        return any(
            a.attr.value in names and origins(self.state.values.get(a.value), Role.ACCELERATOR) for a in attributes
        )

    def _losses(self, total: Total) -> Iterator[Gather]:
        """The losses among what is collected, as ``loss.item()``, ``float(loss)`` or the tensor itself."""
        because = "collected over the epoch, and each process sees only its shard of the data"
        for name in (n for read in self._names(total) for n in (self._read_off(read) or [read])):
            reduction = reduction_of(self.state, self.unit, name)
            part = self._loss_entry(name)
            if part is not None:
                text = self.unit.names.module.code_for_node(part)
                yield Gather(part, (text,), because, form=Form.REDUCE)
            elif self._is_loss(name) and reduction != "mixed" and not self._shape_only(name):
                yield reduced(name, reduction, because)
        for value in total.value:
            yield from self._returned(value, because)

    def _loss_entry(self, name: cst.Name) -> cst.Attribute | cst.Subscript | None:
        """``outputs.loss`` of what the model gave."""
        part = entry(self.unit, name)
        given = origins(self.state.values.get(name), Role.OUTPUT)
        return part if part is not None and given and is_loss_entry(part) else None

    def _returned(self, value: cst.BaseExpression, because: str) -> Iterator[Gather]:
        """The losses whose numbers a function of the program gives to this loop and to no other code."""
        for name in self._made_by_functions(value):
            yield reduced(name, reduction_of(self.state, self.unit, name), because)

    def _made_by_functions(self, value: cst.BaseExpression) -> list[cst.Name]:
        """The losses in the returns of the functions that a value comes from; empty where it is more than these."""
        call = value
        if isinstance(value, cst.Name) and (binding := self.unit.names.binding(value)) is not None:
            made = [v for v in bindings_value(self.unit.names, binding) if v in self.inside]
            call = made[0] if len(made) == 1 and len(binding.definitions) == 1 else value
        if not isinstance(call, cst.Call):
            return []
        functions = self.reach.called(call)
        returns = [r.value for f in functions for r in self.unit.names.returns.get(f, ()) if r.value is not None]
        returns += [f.body for f in functions if isinstance(f, cst.Lambda)]
        names: list[cst.Name] = []
        for given in returns:
            figure = read_off(given)
            names.extend(self._made_by_functions(given) if figure is None else [figure])
        sites = [site for function in functions for site in self.reach.sites(function)]
        alone = bool(returns) and len(names) == len(returns) and all(self._trains_at(site) for site in sites)
        return names if alone and all(self._is_loss(name) for name in names) else []

    def _trains_at(self, site: cst.Call) -> bool:
        """Whether a call is in a training loop, or in a function that only training loops call."""
        loops = self.reach.batch_loops(site, self.state.calls[site].unit)
        return bool(loops) and all(loop in self.training.train_loops for loop in loops)

    def _is_loss(self, name: cst.Name) -> bool:
        return is_loss_name(self.state, self.training, self.unit, name)

    def _read_off(self, name: cst.Name) -> list[cst.Name]:
        """The losses from which a number was read in this step: ``value = loss.item()``."""
        binding = self.unit.names.binding(name)
        if binding is None or not all(d in self.inside for d in binding.definitions):
            return []
        values = [value for d in binding.definitions if (value := assigned(self.unit, d)) is not None]
        found = [loss for v in values if (loss := read_off(v)) is not None and self._is_loss(loss)]
        return found if len(found) == len(binding.definitions) else []

    def _names(self, total: Total) -> list[cst.Name]:
        return [n for v in total.value for n in descendants(v) if isinstance(n, cst.Name)]

    def _shape_only(self, name: cst.Name) -> bool:
        parent = self.unit.names.parents.get(name)
        return isinstance(parent, cst.Attribute) and parent.attr.value in ("size", "shape", "ndim", "dtype")

    def _tensors_in(self, total: Total) -> list[Binding]:
        """The variables with tensors of the batch, losses apart, from which something collected is computed."""
        found: dict[Binding, None] = {}
        settled = {n for v in total.value if self._made_by_functions(v) for n in descendants(v)}
        for name in (n for n in self._names(total) if n not in settled):
            binding = self.unit.names.binding(name)
            if binding is None or self._is_loss(name) or self._read_off(name) or self._loss_entry(name) is not None:
                continue
            if origins(self.state.binding(binding), *TENSORS):
                behind = {} if self._has_rows(binding) else self._behind_number(binding)
                found.update(behind or {binding: None})
            elif origins(self.state.binding(binding), Role.LOCAL):
                found.update(self._behind_number(binding))
        return list(found)

    def _behind_number(self, binding: Binding) -> dict[Binding, None]:
        """The tensors of the batch from which a number (an accuracy, a count) was computed in this step, also by way of
        other numbers: ``hits = (guesses == y).sum().item()``, and then ``accuracy = hits / len(y)``."""
        sources = (source for number in self._numbers_behind(binding) for source in self._sources(number))
        return {source: None for source in sources if origins(self.state.binding(source), *TENSORS)}

    def _numbers_behind(self, binding: Binding) -> dict[Binding, None]:
        """A number, and the numbers of this step from which it was computed."""
        found = {binding: None}
        pending = [binding]
        while pending:
            for source in self._sources(pending.pop()):
                slot = self.state.binding(source)
                if source not in found and origins(slot, Role.LOCAL) and not origins(slot, *TENSORS):
                    found[source] = None
                    pending.append(source)
        return found

    def _sources(self, binding: Binding) -> Iterator[Binding]:
        """The other variables in the plain statements of a step that set a variable."""
        for statement in self.statements:
            if binding in bound(self.unit, statement):
                for node in descendants(statement):
                    source = self.unit.names.binding(node) if isinstance(node, cst.Name) else None
                    if source is not None and source is not binding:
                        yield source

    def _first(self, totals: list[Total]) -> cst.CSTNode | None:
        """The first statement in plain sight from which everything collected comes, if the step's training is done."""
        names = {b for t in totals for b in self._tensors_in(t)}
        wanted = {t.node for t in totals}
        added = (n for t in totals for n in self._names(t) if not self._is_loss(n) and not self._read_off(n))
        figures = (b for n in added if (b := self.unit.names.binding(n)) is not None and b not in names)
        numbers = {number for figure in figures for number in self._numbers_behind(figure)} - names
        needed = None
        for index, statement in enumerate(self.statements):
            nodes = set(descendants(statement))
            collects = not wanted.isdisjoint(nodes)
            makes = any(b in numbers and self._from_batch(b) for b in bound(self.unit, statement))
            if needed is None and (collects or makes):
                needed = index
        if needed is None or not self._trained_by(needed, names):
            return None
        statement = self.statements[needed]
        return statement if isinstance(statement, (cst.SimpleStatementLine, cst.For)) else None

    def _from_batch(self, binding: Binding) -> bool:
        defined_here = any(d in self.inside for d in binding.definitions)
        made_of_rows = origins(self.state.binding(binding), *TENSORS) and bool(self._behind_number(binding))
        return defined_here and bool(made_of_rows or origins(self.state.binding(binding), Role.LOCAL))

    def _trained_by(self, position: int, names: set[Binding]) -> bool:
        """Whether nothing after a position runs the model, or computes a loss, from the gathered variables."""
        before = {b for s in self.statements[:position] for b in bound(self.unit, s)}
        known = {*before, *(bound_by(self.unit, self.loop.target) if isinstance(self.loop, cst.For) else ())}
        if not names <= known:
            return False
        for statement in self.statements[position:]:
            for node in self.reach.runs(statement, self.unit):
                if node in self.training.forwards:
                    return False
            makes_loss = any(origins(self.state.binding(b), Role.LOSS) for b in bound(self.unit, statement))
            if makes_loss:
                return False
        return True


def _stays(node: cst.CSTNode) -> Finding:
    return Finding(
        "metrics_gather",
        node,
        "each process totals only its own shard of the data here",
        "gather the values it is computed from, in the training step: accelerator.gather_for_metrics(...)",
        Severity.REVIEW,
    )
