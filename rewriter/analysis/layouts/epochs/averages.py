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
from functools import cached_property

import libcst as cst

from ....facts.abilities import Abilities
from ....facts.container_methods import adds_in_order
from ....facts.module import SUM_OF_MEANS, Count, Form, Gather
from ....facts.reasons import Reason
from ....facts.reasons.metrics import (
    NUMBER,
    AveragesFilled,
    AveragesUneven,
    CountsFilled,
    OverAll,
    OwnFigures,
    OwnSingles,
    OwnTotal,
    TotalRemedy,
)
from ...dataflow.call_graph import Reach
from ...dataflow.callees import method_name, outside_name
from ...dataflow.values import State, Unit
from ...syntax.definitions import seen_values
from ...syntax.scopes import Binding
from ...syntax.walk import children, descendants, nodes_in
from ...training.gradient_path import GradientPath
from ...training.training import Training, without_gradient
from ..batch_figures import BatchFigure, BatchFigures, Kind, joint_figure
from ..constant_quotients import by_constants, is_written_number
from ..engine.layout import (
    Partial,
    Shard,
    ShardSize,
    inner,
    varies,
)
from ..epoch_quotients import Quotients
from ..epoch_totals import Total, Totals, collecting
from ..last_batches import always_drops_last
from ..loss_reductions import reduction_of
from ..losses import reduced
from ..phases import has_phases
from ..single_rows import read_alone
from ..sums_of_means import divisors_in, is_divided_as_in_script
from .gathers import Gathers
from .numbers import Numbers
from .plan import EpochPlan
from .step import EpochStep

Answer = Gather | Reason | BatchFigure | Count


def averages(
    state: State,
    unit: Unit,
    reach: Reach,
    training: Training,
    path: GradientPath,
    abilities: Abilities,
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
            found.extend(_Loop(EpochStep(state, unit, reach, training, loop, split=split), path, abilities).answers())
        elif loop in unit.names.parents and isinstance(loop, cst.CompFor):
            found.extend(_Loop(EpochStep(state, unit, reach, training, loop), path, abilities).collected())
    return [OwnTotal(a.node) if isinstance(a, Gather) and path.cuts(unit, a) else a for a in found]


class _Loop:
    """One training loop."""

    def __init__(self, step: EpochStep, path: GradientPath, abilities: Abilities) -> None:
        self.step, self.abilities = step, abilities
        self.state, self.unit, self.reach = step.state, step.unit, step.reach
        self.training, self.loop = step.training, step.loop
        self.inside, self.by_hand, self.losses = step.inside, step.by_hand, step.losses
        self.layouts, self.statements = step.layouts, step.statements
        self.numbers = Numbers(step, anywhere=abilities.reduces_anywhere)
        self.gathers = Gathers(step, path)
        self.totals = Totals(step.state, step.unit, step.reach, step.loop)
        self.has_phases = has_phases(step.reach, step.unit, step.training, step.loop)

    def collected(self) -> Iterator[Answer]:
        """The losses of ``[step(batch) for batch in loader]``."""
        around = self.unit.names.parents[self.loop]
        if isinstance(around, (cst.ListComp, cst.SetComp, cst.GeneratorExp)) and self.step.local(around.elt):
            because = "{} is collected over the epoch, by each process for its own shard"
            found = list(self.losses.returned(around.elt, because))
            yield from found
            if not found:
                yield OwnTotal(around)

    def answers(self) -> Iterator[Answer]:
        """The reductions and the gather of this loop, or a finding for what stays local; and what is not as exact."""
        totals = [t for t in self._read_after() if self.step.is_of_batch(t) and not self._is_whole(t)]
        totals = [t for t in totals if not self._is_step(t)]
        entries = [t for t in self.totals.entries(self.statements) if self.step.is_of_batch(t)]
        totals += [t for t in entries if any(self._losses(t))]
        if not totals or self.step.done_already():
            return
        alone = [t for t in totals if self.step.chosen_locally(t)]
        rest = [t for t in totals if t not in alone]
        plan = EpochPlan({t: list(self._losses(t)) for t in rest})
        rated = [t for t in rest if plan.reduced[t] and self.step.is_rated(t)]
        others = [t for t in rest if t not in rated and (self.step.tensors_in(t) or self._has_numbers_alone(t, plan))]
        joint = ((t, joint_figure(self.layouts, t.value)) for t in totals if t not in rated)
        self.gathers.joint = {t: figure for t, figure in joint if figure is not None}
        gathered = [t for t in others if self.gathers.is_gathered(t)]
        lists = [t for t in rest if self.step.lists_rows(t)]
        if any(t in gathered for t in lists) and any(t not in gathered for t in lists):
            gathered = []  # lists that one pass fills go together, entry for entry
        plan.gather_for(gathered, self.gathers.gather)
        quotients = Quotients(self.reach, self.unit, self.reach.loaders(self.loop), totals)
        by_number = [t for t in others if t not in plan.gathered]
        halves = (other for t in by_number for other in quotients.beside(t))  # of the same rows, repeated ones too
        met = any(self.numbers.meets(value, plan) for t in by_number for value in t.value)
        if met or any(other in plan.gathered for other in halves):
            plan.gather_for([], self.gathers.gather)
        for total in (t for t in others if t not in plan.gathered and not self._is_of_whole(t, plan)):
            numbers = self.numbers.by_numbers(total, plan)
            if numbers is None:
                alone.append(total)
            plan.reduced[total] = numbers or []
        meeting = [t for t in rated if any(self.numbers.reads_joined(value, plan) for value in t.value)]
        alone += plan.leave(meeting)
        alone = self._halves(alone, plan, quotients)
        quotients.prefer(alone)
        yield from self._left([t for t in totals if t in alone], quotients)
        yield from self._filled([t for t in rest if t not in alone], plan, quotients)
        yield from (figure for t in rest if t not in alone for figure in self._scaled(t, plan))
        yield from {gather.node: gather for gathers in plan.reduced.values() for gather in gathers}.values()
        if plan.gather is not None:
            yield plan.gather
            yield from self._joined(plan.gather, plan.gathered)

    def _is_step(self, total: Total) -> bool:
        """Whether what takes the batch in is a step of the training: ``learner.update(batch)``."""
        if not isinstance(total.node, cst.Call):
            return False
        trained = {record.unit.names.function(record.node) for record in self.training.backwards}
        return any(not trained.isdisjoint(self.reach.below(code)) for code in self.reach.called(total.node))

    def _read_after(self) -> list[Total]:
        """What is read when the loop is over; and what is divided by that, or divides it, in the loop alone: the halves
        of a quotient are of the same rows."""
        found = list(self.totals.among(self.statements))
        if not found:
            return []
        known = {total.node: total for total in found}
        nodes = (n for s in self.statements for n in descendants(s))
        every = [known.get(total.node, total) for total in collecting(self.state, self.unit, nodes)]
        quotients = Quotients(self.reach, self.unit, self.reach.loaders(self.loop), every)
        for total in found:
            found += [other for other in quotients.beside(total) if other not in found]
        return found

    def _left(self, totals: list[Total], quotients: Quotients) -> Iterator[Reason]:
        """What is said of the totals that stay those of each process: once of all figures of whole batches."""
        figures = self.gathers.joint
        joint = [t for t in totals if not figures.keys().isdisjoint((t, *quotients.beside(t)))]
        if any(total in figures for total in joint):
            texts = [self.unit.names.module.code_for_node(figures[t]) for t in joint if t in figures]
            first = next(total for total in joint if total in figures)
            yield OwnFigures(first.node, tuple(texts), quotients.own(first), self._by_hand(first, quotients))
        said = list(joint)
        for total in totals:
            if total in said:
                continue
            said += quotients.halves(total)  # one finding speaks for both halves
            own = quotients.own(total)
            by_hand = self._by_hand(total, quotients)
            if self.gathers.single:
                yield OwnSingles(total.node, self.gathers.single, own, by_hand)
            else:
                lists = self.step.fills_list(total)
                yield OwnTotal(total.node, own, by_hand if own or lists else self._either(total))

    def _by_hand(self, total: Total, quotients: Quotients) -> TotalRemedy:
        """What makes a total that of all processes, after the loop; it can be run as it is said."""
        code = self.unit.names.module.code_for_node
        if isinstance(total.node, cst.Call):
            if not adds_in_order(method_name(total.node)) or isinstance(total.place, cst.Call):
                return TotalRemedy(OverAll.AVERAGED, "total")
            if method_name(total.node) == "extend" or self._is_of_each_row(total.node):
                return TotalRemedy(OverAll.JOINED, code(total.place))
            how = OverAll.AVERAGED_EACH if self.step.lists_figures(total) else OverAll.JOINED_EACH
            how = OverAll.JOINED_ALONE if read_alone(self.layouts, descendants(total.node)) else how
            return TotalRemedy(how, code(total.place), code(total.value[0]))
        if not isinstance(total.place, (cst.Name, cst.Attribute, cst.Subscript)):
            return TotalRemedy(OverAll.AVERAGED, "total")
        if self.step.fills_list(total):
            return TotalRemedy(OverAll.JOINED, code(total.place))
        halves = {code(part.kept_in): self._reads_again(part) for part in quotients.halves(total)}
        if halves:
            return TotalRemedy(OverAll.SUMMED, halves=tuple(halves.items()))
        if isinstance(total.node, cst.AugAssign) and isinstance(total.place, cst.Subscript):
            return TotalRemedy(OverAll.AVERAGED_ADDED, code(total.place), code(total.value[0]))
        return TotalRemedy(OverAll.AVERAGED, code(total.kept_in))

    def _either(self, total: Total) -> TotalRemedy | None:
        """What makes a total that of all processes where it is not known whether it adds up rows or means."""
        named = isinstance(total.place, (cst.Name, cst.Attribute, cst.Subscript))
        if isinstance(total.node, cst.Call) or not named:
            return None
        half = (self.unit.names.module.code_for_node(total.kept_in), self._reads_again(total))
        return TotalRemedy(OverAll.SUMMED_OR_AVERAGED, halves=(half,))

    def _is_of_each_row(self, call: cst.Call) -> bool:
        """Whether a list gets an entry for each row: in a loop inside that over the batches."""
        return next(self.unit.names.enclosing(call, cst.For, cst.While, cst.CompFor), None) is not self.loop

    def _reads_again(self, total: Total) -> str:
        """What makes of a tensor what a total was before its loop: a number, a list, an array, a tensor."""
        for part in self.step.made_before(total):
            if isinstance(part, (cst.List, cst.ListComp)):
                return ".tolist()"
            record = self.state.calls.get(part) if isinstance(part, cst.Call) else None
            made = outside_name(record) if record is not None else ""
            if made.startswith("torch."):
                return ""
            if made.startswith("numpy."):
                return ".cpu().numpy()"
        return NUMBER

    def _filled(self, totals: list[Total], plan: EpochPlan, quotients: Quotients) -> Iterator[Reason | Count]:
        """What counts the repeated rows that fill up the last shards: a finding where it is shown as if it did not, and
        a word for the summary where it is an average over batches."""
        if not self.abilities.fills_turns and always_drops_last(self.reach.state, self.reach.loaders(self.loop)):
            return
        averaged: dict[str, Total] = {}
        chosen: dict[str, Total] = {}
        counted: dict[str, Total] = {}
        phases = has_phases(
            self.reach, self.unit, self.training, self.loop
        )  # of such a loop one finding speaks for all
        for total in totals if not phases else ():
            text = quotients.by_all_rows(total)
            sums = [gather for gather in plan.reduced[total] if gather.adds_up]
            means = any(gather.reduction != "sum" for gather in plan.reduced[total])
            if self.by_hand and len(sums) == len(plan.reduced[total]):
                continue  # no row is repeated, and a sum is exact
            if sums and not means and not text and (self._sums_batches(total) or not any(quotients.beside(total))):
                text = self.unit.names.module.code_for_node(total.kept_in)
            if text and sums and not means:
                counted[text] = total
            elif self.step.is_weighed(total) if len(sums) < len(plan.reduced[total]) else any(quotients.beside(total)):
                into = chosen if means and self._is_of_chosen(total) else averaged
                into.update((name, total) for gather in plan.reduced[total] for name in gather.names)
            elif means and self.reach.loaders(self.loop):
                yield Count(total.node, "filled", self.unit.names.module.code_for_node(total.kept_in))
        if counted:
            yield CountsFilled(next(iter(counted.values())).node, tuple(counted))
        if averaged:
            node, numbers = next(iter(averaged.values())).node, tuple(averaged)
            yield AveragesUneven(node, numbers) if self.by_hand else AveragesFilled(node, numbers)
        if chosen:
            yield AveragesUneven(next(iter(chosen.values())).node, tuple(chosen), chosen=True)

    def _is_of_chosen(self, total: Total) -> bool:
        """Whether what is added up is of rows that are chosen by what is in them, as many as are in each shard."""
        parts = (n for value in total.value for n in descendants(value) if isinstance(n, cst.BaseExpression))
        held = (inner(self.layouts.value(part)) for part in parts)
        return any(isinstance(one, (Shard, ShardSize)) and one.chosen for one in held)

    def _joined(self, gather: Gather, totals: list[Total]) -> Iterator[BatchFigure]:
        """What is computed from the rows of all, and perhaps is no sum over them."""
        if isinstance(self.loop, cst.For):
            nodes = {total.node for total in totals}
            figures = BatchFigures(self.state, self.unit, self.loop, self.layouts, [gather]).all()
            phases = has_phases(
                self.reach, self.unit, self.training, self.loop
            )  # an evaluation is looked at more closely
            kinds = (Kind.UNKNOWN, Kind.MEAN) if phases else (Kind.UNKNOWN,)
            yield from (figure for figure in figures if figure.kind in kinds and figure.node in nodes)

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
        names = list(nodes_in(value, cst.Name))
        losses = [loss for name in names for loss in self.losses.behind(name)]
        return bool(losses) and not any(self.losses.reduction(loss) == "sum" for loss in losses)

    def _is_whole(self, total: Total) -> bool:
        """Whether nothing is added but sums that are those of all processes: an optimizer has returned them."""
        names = [n for r in self.step.added(total) for n in (self.losses.read_off(r) or [r])]
        local = [name for name in names if self.step.local(name) or self.losses.is_loss(name)]
        return bool(local) and all(self.losses.is_joint(n) and self.losses.reduction(n) == "sum" for n in local)

    def _is_of_whole(self, total: Total, plan: EpochPlan) -> bool:
        """Whether all that is added is read off totals that are those of all processes by then: ``meter.avg``."""
        order, names = self.unit.names.order, self.unit.names
        joined = {t.node for t in (*plan.reduced, *plan.gathered) if plan.makes_whole(t)}
        if not joined:
            return False
        whole = {
            binding
            for binding, nodes in self._fed.items()
            if all(node in joined and order(node) < order(total.node) for node in nodes)
            and not any(
                d in self.inside and names.statement(d) not in map(names.statement, nodes) for d in binding.definitions
            )
        }
        return bool(whole) and all(self._reads_whole(value, whole) for value in total.value)

    @cached_property
    def _fed(self) -> dict[Binding, set[cst.CSTNode]]:
        """The variables that the loop collects in, each with what adds to it."""
        found: dict[Binding, set[cst.CSTNode]] = {}
        for total in collecting(self.state, self.unit, self.inside):
            binding = self.unit.names.binding(total.place) if isinstance(total.place, cst.Name) else None
            if binding is not None:
                found.setdefault(binding, set()).add(total.node)
        return found

    def _reads_whole(self, value: cst.BaseExpression, whole: set[Binding], depth: int = 3) -> bool:
        """Whether everything of this process's rows that a value is computed from is in such totals."""
        read = False
        for name in nodes_in(value, cst.Name):
            binding = self.unit.names.binding(name)
            if binding in whole:
                read = True
            elif self.step.local(name) or self.step.is_number(name) or self.losses.is_loss(name):
                made = seen_values(self.unit.names, name) if depth else []
                inside = bool(made) and all(one in self.inside for one in made)
                if not inside or not all(self._reads_whole(one, whole, depth - 1) for one in made):
                    return False
                read = True
        return read

    def _losses(self, total: Total) -> Iterator[Gather]:
        """The losses among what is collected, as ``loss.item()``, ``float(loss)`` or the tensor itself."""
        because = "{} is collected over the epoch, and each process sees only its shard of the data"
        if (means := self.numbers.rates(total)) is not None:
            yield from means
            return
        sums = self.abilities.adds_means and self._sums_batches(total)
        for read, name in ((r, n) for r in self.step.added(total) for n in (self.losses.read_off(r) or [r])):
            if without_gradient(self.unit, name) and not varies(self.layouts.value(name)):
                continue  # of rows that all processes have, as they are
            reduction = self.losses.reduction(name)
            if reduction == "mixed" and not self.step.split and not self.step.by_hand:
                reduction = "mean"  # of the script's own batches: what it is of one of them is kept
            if sums and reduction == "mean" and (name is read or self._is_read_once(read)):
                reduction = SUM_OF_MEANS
            part = self.losses.loss_entry(name)
            if part is not None:
                text = self.unit.names.module.code_for_node(part)
                how = reduction_of(self.state, self.unit, part)
                how = SUM_OF_MEANS if sums and how == "mean" else "sum" if how == "sum" else "mean"
                yield Gather(part, (text,), because, Form.REDUCE, reduction=how)
            elif self.losses.is_loss(name) and reduction != "mixed" and not self.losses.shape_only(name):
                # a sum over all processes stays what it is by their mean
                yield reduced(name, "mean" if self.losses.is_joint(name) else reduction, because)
        for value in total.value:
            yield from self.losses.returned(value, because)

    def _sums_batches(self, total: Total) -> bool:
        """Whether means of batches are added up and divided by what is as large as in the script, ``total / 1000``,
        ``total / len(data)``: the batches of all processes make up that figure."""
        binding = self.unit.names.binding(total.place) if isinstance(total.place, cst.Name) else None
        if binding is None or total.lists or self.step.is_weighed(total):
            return False  # a list has each of them
        if not self.step.has_fewer() or not isinstance(self.loop, cst.For):
            return False
        divisors = (one for value in total.value for one in divisors_in(value))
        if not all(is_written_number(self.state, self.unit, one) for one in divisors):
            return False  # the rows of a batch, the batches of a loader: a process has its own
        kept = is_divided_as_in_script(self.reach, self.unit, binding, self.loop)
        return kept and all(self._is_of_losses(value) for value in total.value)

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
        if self.losses.behind(value) or self.losses.loss_entry(value) is not None:
            return True
        inside = bool(made) and all(part in self.inside for part in made)
        return inside and all(self._is_of_losses(part, seen | {value}) for part in made)

    def _is_read_once(self, name: cst.Name) -> bool:
        binding = self.unit.names.binding(name)
        return binding is not None and len(binding.reads) == 1

    def _scaled(self, total: Total, plan: EpochPlan) -> Iterator[BatchFigure]:
        """Means that are added up and divided by a constant, and that something else reads as means."""
        binding = self.unit.names.binding(total.place) if isinstance(total.place, cst.Name) else None
        means = any(gather.reduction == "mean" for gather in plan.reduced[total])
        if binding is None or not means or not isinstance(self.loop, cst.For) or not self.step.has_fewer():
            return
        divisor = next((d for d in by_constants(self.state, self.unit, binding, self.inside) if d is not None), None)
        if divisor is not None:
            code = self.unit.names.module.code_for_node
            yield BatchFigure(Kind.SCALED, self.loop, total.node, binding.name, code(divisor))

    def _has_numbers_alone(self, total: Total, plan: EpochPlan) -> bool:
        """Whether what is added is made of numbers, with no tensor and no loss in sight."""
        return not plan.reduced[total] and any(map(self.step.is_number, total.value))
