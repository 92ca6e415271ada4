"""
Totals of training: losses and counts that are collected over an epoch's steps and read after the loop.

A loss is averaged over the processes where it is collected. Whatever else is collected (hits, counts) is computed
from tensors of the batch: these are gathered before the first statement that collects, when everything that the
step computes from them is done by then. A figure of one whole batch (an F1) is not computed from joined rows: it
stays that of each process, and is named. What is collected and read inside the loop only, for a log line every few
steps, stays that of the process that prints it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import libcst as cst

from ...facts.module import Count, Form, Gather, Side
from ...facts.roles import SHARES, TENSORS, Role
from ...findings import Finding
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.modules import torch_name
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value, seen_values, unshadowed
from ..syntax.scopes import Binding
from ..syntax.walk import children, descendants
from ..training.gradient_path import GradientPath
from ..training.schedules import follows_batches
from ..training.training import Training
from .batch_artifacts import has_phases
from .batch_figures import BatchFigure, BatchFigures, Kind, joint_figure
from .batch_shapes import batch_sizes, divided_by
from .constant_quotients import by_constants
from .engine.layout import (
    CHOSEN,
    Partial,
    ShardRow,
    ShardSize,
    Unclear,
    holds_figure,
    holds_rows_apart,
    inner,
    is_container,
    is_figure,
    varies,
)
from .epoch_findings import (
    NUMBER,
    averaged,
    averages_filled,
    averages_uneven,
    counts_filled,
    listed,
    stays,
    stays_joint,
    stays_shaped,
    summed,
)
from .epoch_plan import EpochPlan
from .epoch_quotients import Quotients
from .epoch_totals import LISTS, Total, Totals, deciding
from .last_batches import always_drops_last
from .loop_layouts import layouts_of
from .loop_step import bound, bound_by, entry, is_loss_entry, plain
from .loss_reductions import reduction_of
from .losses import assigned, is_loss_name, is_tensor, read_off, reduced
from .padding import ragged
from .row_counts import counted, only_counted
from .single_rows import of_any_shape

_EXPRESSIONS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)


Answer = Gather | Finding | BatchFigure | Count


def averages(
    state: State,
    unit: Unit,
    reach: Reach,
    training: Training,
    path: GradientPath,
    *,
    split: bool = False,
    done: Container[cst.CSTNode] = (),
) -> list[Answer]:
    """What must be made whole in the training loops of a module; what is trained on stays as it is. ``split``: the
    processes share the script's batches, and have as many of them as one process; ``done``: loops of which the script
    has cut the batches, and decided what is whole, already."""
    found: list[Answer] = []
    for loop in training.train_loops:
        if loop in done:
            continue
        if loop in unit.names.parents and isinstance(loop, (cst.For, cst.While)):
            found.extend(_Loop(state, unit, reach, training, path, loop, split=split).answers())
        elif loop in unit.names.parents and isinstance(loop, cst.CompFor):
            found.extend(_Loop(state, unit, reach, training, path, loop).collected())
    return [stays(a.node) if isinstance(a, Gather) and path.cuts(unit, a) else a for a in found]


class _Loop:
    """One training loop."""

    def __init__(
        self,
        state: State,
        unit: Unit,
        reach: Reach,
        training: Training,
        path: GradientPath,
        loop: cst.For | cst.While | cst.CompFor,
        *,
        split: bool = False,
    ) -> None:
        self.state, self.unit, self.reach, self.training, self.loop = state, unit, reach, training, loop
        self.path, self.split = path, split
        self.inside = set(descendants(loop))
        self.totals = Totals(state, unit, reach, loop)
        self.layouts = layouts_of(state).loop(unit, loop)
        self.by_hand = layouts_of(state).is_by_hand(loop)
        self.statements = [] if isinstance(loop, cst.CompFor) else plain(loop.body)
        self.shape = ""
        """What may have another shape on each process, so that no rows are gathered."""
        self.joint: dict[Total, cst.BaseExpression] = {}
        """The totals of a figure that the rows of one batch make together, and which that is."""

    def collected(self) -> Iterator[Answer]:
        """The losses of ``[step(batch) for batch in loader]``."""
        around = self.unit.names.parents[self.loop]
        if isinstance(around, (cst.ListComp, cst.SetComp, cst.GeneratorExp)) and self._local(around.elt):
            found = list(self._returned(around.elt, "collected over the epoch, by each process for its own shard"))
            yield from found
            if not found:
                yield stays(around)

    def answers(self) -> Iterator[Answer]:
        """The reductions and the gather of this loop, or a finding for what stays local; and what is not as exact."""
        totals = [t for t in self.totals.among(self.statements) if self._is_of_batch(t)]
        if not totals or self._done_already():
            return
        alone = [t for t in totals if self._chosen_locally(t)]
        rest = [t for t in totals if t not in alone]
        plan = EpochPlan({t: list(self._losses(t)) for t in rest})
        rated = [t for t in rest if plan.reduced[t] and self._is_rated(t)]
        others = [t for t in rest if t not in rated and (self._tensors_in(t) or self._has_numbers_alone(t, plan))]
        joint = ((t, joint_figure(self.layouts, t.value)) for t in totals if t not in rated)
        self.joint = {t: figure for t, figure in joint if figure is not None}
        gathered = [t for t in others if self._is_gathered(t)]
        lists = [t for t in rest if self._lists_rows(t)]
        if any(t in gathered for t in lists) and any(t not in gathered for t in lists):
            gathered = []  # lists that one pass fills go together, entry for entry
        plan.gather_for(gathered, self._gather)
        if any(self._meets(value, plan) for t in others if t not in plan.gathered for value in t.value):
            plan.gather_for([], self._gather)
        for total in (t for t in others if t not in plan.gathered):
            numbers = self._by_numbers(total, plan)
            if numbers is None:
                alone.append(total)
            plan.reduced[total] = numbers or []
        meeting = [t for t in rated if any(self._reads_joined(value, plan) for value in t.value)]
        alone += plan.leave(meeting)
        quotients = Quotients(self.reach, self.unit, self.reach.loaders(self.loop), totals)
        alone = self._halves(alone, plan, quotients)
        yield from self._left([t for t in totals if t in alone], quotients)
        yield from self._filled([t for t in rest if t not in alone], plan, quotients)
        yield from (figure for t in rest if t not in alone for figure in self._scaled(t, plan))
        yield from {gather.node: gather for gathers in plan.reduced.values() for gather in gathers}.values()
        if plan.gather is not None:
            yield plan.gather
            yield from self._joined(plan.gather, plan.gathered)

    def _left(self, totals: list[Total], quotients: Quotients) -> Iterator[Finding]:
        """What is said of the totals that stay those of each process: once of all figures of whole batches."""
        joint = [t for t in totals if not self.joint.keys().isdisjoint((t, *quotients.beside(t)))]
        if any(total in self.joint for total in joint):
            texts = [self.unit.names.module.code_for_node(self.joint[t]) for t in joint if t in self.joint]
            first = next(total for total in joint if total in self.joint)
            yield stays_joint(first.node, texts, quotients.told(first), self._by_hand(first, quotients))
        for total in (t for t in totals if t not in joint):
            told = quotients.told(total)
            by_hand = self._by_hand(total, quotients)
            if self.shape:
                yield stays_shaped(total.node, self.shape, told, by_hand)
            else:
                yield stays(total.node, told, by_hand if told or self._lists_rows(total) else "")

    def _by_hand(self, total: Total, quotients: Quotients) -> str:
        """What makes a total that of all processes, after the loop; it can be run as it is said."""
        code = self.unit.names.module.code_for_node
        if isinstance(total.node, cst.Call):
            lists = method_name(total.node) in LISTS and not isinstance(total.place, cst.Call)
            return listed(code(total.place)) if lists else averaged("total")
        if not isinstance(total.place, (cst.Name, cst.Attribute, cst.Subscript)):
            return averaged("total")
        halves = {code(part.kept_in): self._reads_again(part) for part in quotients.halves(total)}
        return summed(halves) if halves else averaged(code(total.kept_in))

    def _reads_again(self, total: Total) -> str:
        """What makes of a tensor what a total was before its loop: a number, a list, an array, a tensor."""
        binding = self.unit.names.binding(total.kept_in) if isinstance(total.kept_in, cst.Name) else None
        before = [d for d in binding.definitions if d not in self.inside] if binding is not None else []
        for value in bindings_value(self.unit.names, binding, before) if binding is not None else ():
            parts = (value.left, value.right) if isinstance(value, cst.BinaryOperation) else (value,)
            if any(isinstance(part, (cst.List, cst.ListComp)) for part in parts):
                return ".tolist()"
            record = self.state.calls.get(value) if isinstance(value, cst.Call) else None
            made = outside_name(record) if record is not None else ""
            if made.startswith("torch."):
                return ""
            if made.startswith("numpy."):
                return ".cpu().numpy()"
        return NUMBER

    def _filled(self, totals: list[Total], plan: EpochPlan, quotients: Quotients) -> Iterator[Finding | Count]:
        """What counts the repeated rows that fill up the last shards: a finding where it is shown as if it did not, and
        a word for the summary where it is an average over batches."""
        if always_drops_last(self.reach.state, self.reach.loaders(self.loop)):
            return
        averaged: dict[str, Total] = {}
        phases = has_phases(self.unit, self.training, self.loop)  # of such a loop one finding speaks for all
        for total in totals if not phases else ():
            text = quotients.by_all_rows(total)
            sums = [gather for gather in plan.reduced[total] if gather.reduction == "sum"]
            if self.by_hand and len(sums) == len(plan.reduced[total]):
                continue  # no row is repeated, and a sum is exact
            if text and sums:
                yield counts_filled(total.node, text)
            elif self._is_weighed(total) if len(sums) < len(plan.reduced[total]) else any(quotients.beside(total)):
                averaged.update((name, total) for gather in plan.reduced[total] for name in gather.names)
            elif len(sums) < len(plan.reduced[total]) and self.reach.loaders(self.loop):
                yield Count(total.node, "filled", self.unit.names.module.code_for_node(total.kept_in))
        if averaged:
            told = averages_uneven if self.by_hand else averages_filled
            yield told(next(iter(averaged.values())).node, list(averaged))

    def _is_weighed(self, total: Total) -> bool:
        """Whether the number of rows weighs what is added: ``loss.item() * len(y)``, ``meter.update(mean, len(y))``."""
        parts = (part for value in total.value for part in descendants(value) if isinstance(part, _EXPRESSIONS))
        weighed = any(isinstance(inner(self.layouts.value(part)), ShardSize) for part in parts)
        return weighed and not self._is_rated(total)

    def _joined(self, gather: Gather, totals: list[Total]) -> Iterator[BatchFigure]:
        """What is computed from the rows of all, and perhaps is no sum over them."""
        if isinstance(self.loop, cst.For):
            nodes = {total.node for total in totals}
            figures = BatchFigures(self.state, self.unit, self.loop, self.layouts, [gather]).all()
            yield from (figure for figure in figures if figure.kind is Kind.UNKNOWN and figure.node in nodes)

    # Which totals are of the batch ------------------------------------------------------------------------------------

    def _is_of_batch(self, total: Total) -> bool:
        """Whether what is added, or where and how often, depends on the rows of this process."""
        if any(self._local(v) or self._is_number(v) for v in total.value):
            return True
        return any(self._decides(d) for d in self._deciding(total))

    def _is_rated(self, total: Total) -> bool:
        """Whether a loss is divided by the number of rows of its batch, and nothing else of the batch is in what is
        added. It is joined as the loss is: the number is about the same on all processes, while joined rows are
        several times as many."""
        divisors: list[cst.BaseExpression] = []
        for value in total.value:
            for node in descendants(value):
                if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Divide):
                    divisors += [node.right] if isinstance(inner(self.layouts.value(node.right)), ShardSize) else []
        counted = {node for divisor in divisors for node in descendants(divisor)}
        names = [name for name in self._names(total) if name not in counted]
        others = (name for name in names if not self._is_loss(name) and not self._read_off(name))
        return bool(divisors) and not any(self._local(name) for name in others)

    def _has_numbers_alone(self, total: Total, plan: EpochPlan) -> bool:
        """Whether what is added is made of numbers, with no tensor and no loss in sight."""
        return not plan.reduced[total] and any(map(self._is_number, total.value))

    def _is_number(self, value: cst.BaseExpression) -> bool:
        """Whether a value is a number, or a container with some, that code of the program computes from the rows of the
        batch."""
        layout = self.layouts.value(value)
        if is_container(layout) and holds_figure(layout):
            return True
        layout = inner(layout)
        if isinstance(layout, Unclear):
            return layout.joint
        return isinstance(layout, ShardRow) or (isinstance(layout, Partial) and layout.host is True)

    def _deciding(self, total: Total) -> Iterator[cst.BaseExpression]:
        return deciding(self.unit, self.loop, total)

    def _decides(self, part: cst.BaseExpression) -> bool:
        """Whether a place, a condition or the turns of a loop depend on the rows of this process."""
        return self._reads_local(part) and varies(self.layouts.value(part))

    def _reads_local(self, value: cst.BaseExpression) -> bool:
        return any(self._local(part) for part in descendants(value) if isinstance(part, _EXPRESSIONS))

    def _turns(self, total: Total) -> cst.For | None:
        """The loop over the rows of a batch, in plain sight, that a total is in: what is gathered before it gives it
        the rows of all."""
        around = next((s for s in self.statements if s in set(self.unit.names.ancestors(total.node))), None)
        return around if isinstance(around, cst.For) and self._decides(around.iter) else None

    def _chosen_locally(self, total: Total) -> bool:
        """Whether one process may collect what another passes over: nothing may be reduced or gathered there."""
        turns = self._turns(total)
        around = self.unit.names.enclosing(total.node, cst.If, cst.While)
        tests = [a.test for a in around if isinstance(a, (cst.If, cst.While)) and a in self.inside]
        local = [test for test in tests if self._reads_local(test)]
        if turns is None:
            return bool(local) or any(self._holds_figure(part) for part in self._deciding(total) if part not in tests)
        rows = all(isinstance(inner(self.layouts.value(test)), ShardRow) for test in local)
        return not rows or self._holds_figure(turns)

    def _holds_figure(self, node: cst.CSTNode) -> bool:
        """Whether a loss, or another figure of the batch as it is before a node, is read there."""
        read = (n for n in descendants(node) if isinstance(n, cst.Name))
        bindings = (b for n in read if (b := self.unit.names.binding(n)) is not None and self._set_here(b, node))
        return any(self.layouts.holds_figure(b) or origins(self.state.binding(b), Role.LOSS) for b in bindings)

    def _set_here(self, binding: Binding, node: cst.CSTNode) -> bool:
        """Whether a variable gets a new value in a turn of the loop, outside a node of it."""
        below = set(descendants(node))
        anew = (d for d in binding.definitions if d in self.inside and d not in below)
        return any(not isinstance(self.unit.names.parents.get(d), cst.AugAssign) for d in anew)

    # What makes them whole --------------------------------------------------------------------------------------------

    def _is_gathered(self, total: Total) -> bool:
        """Whether the rows can be gathered from which a total is computed."""
        tensors = self._tensors_in(total)
        if total in self.joint or self._adds_whole(total) or not tensors or not all(self._has_rows(b) for b in tensors):
            return False
        if self._reads_figures(total):
            return False
        return not self._reads_containers(total) and self._gather([total]) is not None

    def _reads_containers(self, total: Total) -> bool:
        """Whether a total is computed from rows in a list or a dict, too, which are not gathered."""
        read = {b for n in self._names(total) if (b := self.unit.names.binding(n)) is not None}
        read |= {source for b in read for number in self._numbers_behind(b) for source in self._sources(number)}
        others = (b for b in read if not origins(self.state.binding(b), *TENSORS))
        return any(holds_rows_apart(self.layouts.of(b, self.statements)) for b in others)

    def _reads_figures(self, total: Total) -> bool:
        """Whether a total is computed from an entry of several figures of this process, too, which nothing else
        reduces: ``loss[0].item() * x.size(0)``. Beside the number of all rows it would be that of one process."""
        read = [n for n in self._added(total) if self._loss_entry(n) is None and not self._is_loss(n)]
        held = [(b, self.layouts.value(n)) for n in read if (b := self.unit.names.binding(n)) is not None]
        return any(is_container(one) and holds_figure(one) and not self._is_of_tensors(b) for b, one in held)

    def _gather(self, totals: list[Total]) -> Gather | None:
        """One gather for several totals."""
        names = list(dict.fromkeys(b for t in totals for b in self._tensors_in(t)))
        first = self._first(totals)
        if first is None or self._cuts(first, names) or self._rates(first):
            return None
        because = "totals of the epoch are computed from them, and each process holds only its shard"
        behind = {n for s in self.statements[self.statements.index(first) :] for n in descendants(s)}
        if any(self._reads(total, names, behind) for total in self.joint):
            return None
        names, counts = counted(self.state, self.unit, self.training, self.loop, self.layouts, names, behind)
        gather = Gather(first, tuple(b.name for b in names), because, side=Side.BEFORE, counts=counts)
        gather = gather._replace(sized=only_counted(self.layouts, self.training, self.loop, gather, names))
        self.shape = of_any_shape(self.state, self.reach, self.layouts, self.loop, [gather])
        cut = self.path.cuts(self.unit, gather)
        return None if cut or self.shape or ragged(self.state, self.reach, self.unit, self.loop, [gather]) else gather

    def _reads(self, total: Total, names: list[Binding], behind: set[cst.CSTNode]) -> bool:
        """Whether some code computes what a total adds from variables, by way of others too."""
        read = [n for n in self._names(total) if n in behind]
        numbers = {number for n in read if (b := self.unit.names.binding(n)) for number in self._numbers_behind(b)}
        made = [s for s in self.statements if s in behind and not numbers.isdisjoint(bound(self.unit, s))]
        read += [n for statement in made for n in descendants(statement) if isinstance(n, cst.Name)]
        return any(self.unit.names.binding(name) in names for name in read)

    def _meets(self, value: cst.BaseExpression, plan: EpochPlan) -> bool:
        """Whether a value would be computed from joined rows and from this process's own."""
        return self._reads_joined(value, plan) and not isinstance(self.layouts.value(value), ShardSize)

    def _reads_joined(self, value: cst.BaseExpression, plan: EpochPlan) -> bool:
        """Whether a value reads what the gather of the loop has joined by then, or counts that in place of
        another."""
        gather = plan.gather
        if gather is None or self.unit.names.order(value) < self.unit.names.order(gather.node):
            return False
        counts = {name for name, _ in gather.counts}
        names = [part for part in descendants(value) if isinstance(part, cst.Name)]
        return any(name in counts or name.value in gather.set_anew for name in names)

    def _by_numbers(self, total: Total, plan: EpochPlan) -> list[Gather] | None:
        """
        The reductions of what a total adds, number by number; None where something in it is none, or is not computed by
        all processes alike.

        Args:
            total: whose rows cannot be gathered.
            plan: with the reductions of the losses in it. One that is a part of a number is reduced with that; a number
                of rows that are joined is whole.
        """
        losses = plan.reduced[total]
        loops = self.unit.names.enclosing(total.node, cst.For)
        if any(isinstance(a, cst.For) and a in self.inside and self._decides(a.iter) for a in loops):
            return None
        found: list[Gather] = []
        for value in total.value:
            if self._reads_joined(value, plan):
                continue
            if not self._tensors_in(Total(total.node, [value], total.place)) and (losses or not self._is_number(value)):
                below = set(descendants(value))
                found += [gather for gather in losses if gather.node in below]
                continue
            number = self._number(value)
            if number is None:
                return None
            found.append(number)
        return found

    def _number(self, value: cst.BaseExpression) -> Gather | None:
        """The reduction of one number that the rows of the batch were reduced to."""
        layout = self.layouts.value(value)
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and method_name(value) == "item":
            tensor = self.layouts.value(value.func.value)
            value, layout = (value.func.value, tensor) if is_figure(tensor) else (value, layout)
        if isinstance(layout, Partial) and layout.host is True and layout.uneven == CHOSEN:
            return None  # a mean of as many entries as this process has chosen
        op = "sum" if isinstance(layout, ShardSize) else layout.op if isinstance(layout, Partial) else ""
        number = isinstance(layout, ShardSize) or (isinstance(layout, Partial) and layout.host is True)
        torch = torch_name(self.state, self.unit) if number else None
        if not op or (number and torch is None) or not (number or is_figure(layout)) or self._is_scaled(value):
            return None
        text = self.unit.names.module.code_for_node(value)
        plain = number or isinstance(value, _EXPRESSIONS) or value.lpar
        because = "collected over the epoch, and each process computes it from its shard of the data"
        of = text if plain else f"({text})"
        real = bool(number) and self._is_real(value)
        return Gather(value, (of,), because, Form.REDUCE, reduction=op, number=torch or "", real=real)

    def _is_real(self, value: cst.BaseExpression, seen: frozenset[Binding] = frozenset()) -> bool:
        """Whether a number is certainly a float: a mean, a quotient, what is computed from one."""
        layout = self.layouts.value(value)
        if isinstance(value, cst.Float) or (isinstance(layout, Partial) and layout.op == "mean"):
            return True
        if isinstance(value, cst.BinaryOperation):
            divided = isinstance(value.operator, cst.Divide)
            return divided or self._is_real(value.left, seen) or self._is_real(value.right, seen)
        if isinstance(value, cst.Call):
            named = isinstance(value.func, cst.Name) and value.func.value == "float"
            functions = self.reach.called(value)
            given = [r.value for f in functions for r in self.unit.names.returns.get(f, ()) if r.value is not None]
            return named or (bool(given) and all(self._is_real(one, seen) for one in given))
        binding = self.unit.names.binding(value) if isinstance(value, cst.Name) else None
        if binding is None or binding in seen:
            return False
        values = bindings_value(self.unit.names, binding, unshadowed(self.unit.names, binding, value))
        return any(self._is_real(one, seen | {binding}) for one in values)

    def _is_scaled(self, value: cst.BaseExpression, seen: frozenset[Binding] = frozenset()) -> bool:
        """Whether a number is divided by what is the same on all processes, such as the batch size: as a sum it would
        grow with the number of processes, and it may be meant for a mean."""
        for part in descendants(value):
            if isinstance(part, cst.BinaryOperation) and isinstance(part.operator, (cst.Divide, cst.FloorDivide)):
                if varies(self.layouts.value(part.left)) and not varies(self.layouts.value(part.right)):
                    return True
            binding = self.unit.names.binding(part) if isinstance(part, cst.Name) else None
            if binding is not None and binding not in seen:
                here = [d for d in binding.definitions if d in self.inside]
                values = bindings_value(self.unit.names, binding, here)
                if any(self._is_scaled(one, seen | {binding}) for one in values if value not in set(descendants(one))):
                    return True
        return False

    def _halves(self, alone: list[Total], plan: EpochPlan, quotients: Quotients) -> list[Total]:
        """
        The totals that stay those of each process: also what is divided by one of them, or divides it.

        A sum over all rows that is divided by the count of one process's rows is N times too large.
        """
        local = list(alone)
        while True:
            sums = [t for t in local if self._is_sum(t)]
            halves = [
                t
                for t in (*plan.reduced, *plan.gathered)
                if t not in local and plan.makes_whole(t) and self._is_sum(t)
                if any(other in sums for other in self._together(t, quotients, sums))
            ]
            if not halves:
                return local
            local += plan.leave(halves)

    def _together(self, total: Total, quotients: Quotients, others: list[Total]) -> Iterator[Total]:
        """What is divided by a total, or divides it; where none is seen, what the same `return` gives."""
        beside = list(quotients.beside(total))
        yield from beside
        for given in self._given(total) if not beside else ():
            yield from (other for other in others if given in self._given(other))

    def _lists_rows(self, total: Total) -> bool:
        """Whether a list is given rows of each batch: as many entries as the batch has rows, or all of them as one."""
        if not isinstance(total.node, cst.Call) or method_name(total.node) not in LISTS:
            return False
        layouts = [inner(self.layouts.value(value)) for value in total.value]
        number = any(isinstance(one, (Partial, ShardSize)) for one in layouts)
        return not number and not any(read_off(value) is not None for value in total.value)

    def _given(self, total: Total) -> list[cst.CSTNode]:
        """The returns that read what a total is kept in."""
        root = total.place
        while isinstance(root, (cst.Attribute, cst.Subscript)):
            root = root.value
        binding = self.unit.names.binding(root) if isinstance(root, cst.Name) else None
        reads = binding.reads if binding is not None else ()
        return [given for read in reads for given in self.unit.names.enclosing(read, cst.Return)]

    def _is_sum(self, total: Total) -> bool:
        """Whether a total grows with the number of rows; one of means does not, whatever they are weighted with:
        ``meter.update(loss.item(), len(y))``."""
        return not any(self._is_mean(value) for value in total.value)

    def _is_mean(self, value: cst.BaseExpression) -> bool:
        layout = inner(self.layouts.value(value))
        if isinstance(layout, Partial):
            return layout.op == "mean"
        names = [n for n in descendants(value) if isinstance(n, cst.Name)]
        losses = [loss for n in names for loss in (self._read_off(n) or ([n] if self._is_loss(n) else []))]
        return bool(losses) and not any(self._reduction(loss) == "sum" for loss in losses)

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
        """Whether the step divides something by its batch size, of which the rows of all are several, or shapes rows by
        it."""
        sizes = batch_sizes(self.reach, self.reach.loaders(self.loop))
        later = self.statements[self.statements.index(first) :]
        return any(divided_by(one, sizes) or self.layouts.fixes_shape(descendants(one)) for one in later)

    def _has_rows(self, binding: Binding) -> bool:
        """Whether a tensor's first dimension counts the rows of the batch: it is the batch, the model's output for it,
        or computed row by row from these."""
        if self.layouts.has_chosen(binding):
            return False
        if isinstance(self.loop, cst.For) and binding in bound_by(self.unit, self.loop.target):
            return True
        return not self.layouts.holds_figure(binding) and self.layouts.is_rows(binding)

    def _local(self, value: cst.BaseExpression) -> bool:
        if origins(self.state.values.get(value), *SHARES):
            return True
        return self.by_hand and self.layouts.depends_on_rows(value)  # of which no value has a role

    def _done_already(self) -> bool:
        attributes = (n for n in self.inside if isinstance(n, cst.Attribute))
        names = ("reduce", "gather", "gather_for_metrics")
        return any(
            a.attr.value in names and origins(self.state.values.get(a.value), Role.ACCELERATOR) for a in attributes
        )

    def _losses(self, total: Total) -> Iterator[Gather]:
        """The losses among what is collected, as ``loss.item()``, ``float(loss)`` or the tensor itself."""
        because = "collected over the epoch, and each process sees only its shard of the data"
        sums = self._sums_batches(total)
        for read, name in ((r, n) for r in self._added(total) for n in (self._read_off(r) or [r])):
            reduction = self._reduction(name)
            if sums and reduction == "mean" and (name is read or self._is_read_once(read)):
                reduction = "sum"
            part = self._loss_entry(name)
            if part is not None:
                text = self.unit.names.module.code_for_node(part)
                yield Gather(part, (text,), because, form=Form.REDUCE)
            elif self._is_loss(name) and reduction != "mixed" and not self._shape_only(name):
                yield reduced(name, reduction, because)
        for value in total.value:
            yield from self._returned(value, because)

    def _sums_batches(self, total: Total) -> bool:
        """Whether means of batches are added up and divided by a constant, ``total / 1000``: the batches of all
        processes make up that figure."""
        binding = self.unit.names.binding(total.place) if isinstance(total.place, cst.Name) else None
        if binding is None or self._is_weighed(total):
            return False
        divisors = by_constants(self.state, self.unit, binding, self.inside)
        fewer = self._has_fewer() and bool(divisors) and None not in divisors
        return fewer and all(self._is_of_losses(value) for value in total.value)

    def _is_of_losses(self, value: cst.CSTNode, seen: frozenset[cst.CSTNode] = frozenset()) -> bool:
        """Whether a loss, which is reduced, is in each term of a sum: any other is added once a batch of a process."""
        if isinstance(value, cst.BinaryOperation):
            sides = [value.left] if isinstance(value.operator, cst.Divide) else [value.left, value.right]
            either = any if isinstance(value.operator, cst.Multiply) else all
            return either(self._is_of_losses(side, seen) for side in sides)
        if isinstance(value, cst.Call):
            base = value.func.value if isinstance(value.func, cst.Attribute) else None
            given = [arg.value for arg in value.args[:1]]
            return any(self._is_of_losses(part, seen) for part in (*([base] if base is not None else []), *given))
        if not isinstance(value, cst.Name) or value in seen:
            return any(self._is_of_losses(node, seen | {value}) for node in children(value))
        made = seen_values(self.unit.names, value)
        if self._is_loss(value) or self._read_off(value) or self._loss_entry(value) is not None:
            return True
        inside = bool(made) and all(part in self.inside for part in made)
        return inside and all(self._is_of_losses(part, seen | {value}) for part in made)

    def _has_fewer(self) -> bool:
        """Whether a process has fewer batches than the script, and the loop ends with them."""
        whole = not self.split and not self.by_hand and bool(self.reach.loaders(self.loop))
        return whole and follows_batches(self.reach, self.loop)

    def _is_read_once(self, name: cst.Name) -> bool:
        binding = self.unit.names.binding(name)
        return binding is not None and len(binding.reads) == 1

    def _scaled(self, total: Total, plan: EpochPlan) -> Iterator[BatchFigure]:
        """Means that are added up and divided by a constant, and that something else reads as means."""
        binding = self.unit.names.binding(total.place) if isinstance(total.place, cst.Name) else None
        means = any(gather.reduction == "mean" for gather in plan.reduced[total])
        if binding is None or not means or not isinstance(self.loop, cst.For) or not self._has_fewer():
            return
        divisor = next((d for d in by_constants(self.state, self.unit, binding, self.inside) if d is not None), None)
        if divisor is not None:
            code = self.unit.names.module.code_for_node
            yield BatchFigure(Kind.SCALED, self.loop, total.node, binding.name, code(divisor))

    def _loss_entry(self, name: cst.Name) -> cst.Attribute | cst.Subscript | None:
        """``outputs.loss`` of what the model gave."""
        part = entry(self.unit, name)
        given = origins(self.state.values.get(name), Role.OUTPUT)
        single = part is not None and given and is_loss_entry(part, self.layouts.value(part))
        return part if single else None

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
        """Whether a name holds a loss, in a tensor for certain: only that can be detached and reduced."""
        named = is_loss_name(self.state, self.training, self.unit, name) and self._is_tensor(name)
        return named or self._is_of_forward(name)

    def _is_tensor(self, name: cst.Name) -> bool:
        layout = self.layouts.value(name)
        known = isinstance(layout, Partial) or is_container(layout)
        return is_figure(layout) if known else is_tensor(self.state, self.unit, name)

    def _is_of_forward(self, name: cst.Name) -> bool:
        """Whether a name holds one number, in a tensor, as a module gave it: a part of a loss."""
        binding = self.unit.names.binding(name) if name in self.inside else None
        made = bindings_value(self.unit.names, binding) if binding is not None else []
        given = bool(made) and all(value in self.training.forwards for value in made)
        return given and is_figure(self.layouts.value(name))

    def _reduction(self, name: cst.Name) -> str:
        """How a loss is joined."""
        layout = self.layouts.value(name) if self._is_of_forward(name) else None
        return layout.op if isinstance(layout, Partial) else reduction_of(self.state, self.unit, name)

    def _read_off(self, name: cst.Name) -> list[cst.Name]:
        """The losses from which a number was read in this step: ``value = loss.item()``."""
        binding = self.unit.names.binding(name)
        seen = unshadowed(self.unit.names, binding, name) if binding is not None else ()
        if not all(d in self.inside for d in seen):
            return []
        values = [value for d in seen if (value := assigned(self.unit, d)) is not None]
        found = [loss for v in values if (loss := read_off(v)) is not None and self._is_loss(loss)]
        return found if len(found) == len(seen) else []

    def _added(self, total: Total) -> list[cst.Name]:
        return [n for v in total.value for n in descendants(v) if isinstance(n, cst.Name)]

    def _names(self, total: Total) -> list[cst.Name]:
        """What a total is computed from: all that a loop over the rows reads, if it is in one."""
        turns = self._turns(total)
        if turns is None:
            entries = (p for p in self._deciding(total) if self._decides(p))
            return [*self._added(total), *(n for p in entries for n in descendants(p) if isinstance(n, cst.Name))]
        names = (n for n in descendants(turns) if isinstance(n, cst.Name))
        return [n for n in names if (b := self.unit.names.binding(n)) is not None and self._set_here(b, turns)]

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
            if self._is_of_tensors(binding):
                behind = {} if self._has_rows(binding) else self._behind_number(binding)
                found.update(behind or {binding: None})
            elif origins(self.state.binding(binding), Role.LOCAL):
                found.update(self._behind_number(binding))
        return list(found)

    def _is_of_tensors(self, binding: Binding) -> bool:
        """Whether a variable holds a tensor of the batch, or several."""
        return bool(origins(self.state.binding(binding), *TENSORS)) or self.layouts.is_tensor(binding)

    def _behind_number(self, binding: Binding) -> dict[Binding, None]:
        """The tensors of the batch from which a number (an accuracy, a count) was computed in this step, also by way of
        other numbers: ``hits = (guesses == y).sum().item()``, and then ``accuracy = hits / len(y)``."""
        sources = (source for number in self._numbers_behind(binding) for source in self._sources(number))
        return {source: None for source in sources if self._is_of_tensors(source)}

    def _numbers_behind(self, binding: Binding) -> dict[Binding, None]:
        """A number, and the numbers of this step from which it was computed."""
        found = {binding: None}
        pending = [binding]
        while pending:
            for source in self._sources(pending.pop()):
                slot = self.state.binding(source)
                if source not in found and origins(slot, Role.LOCAL) and not self._is_of_tensors(source):
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
        made_of_rows = self._is_of_tensors(binding) and bool(self._behind_number(binding))
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
