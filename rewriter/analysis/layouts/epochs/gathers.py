"""The gather that gives a training loop's totals the rows of all processes."""

from __future__ import annotations

from functools import partial

import libcst as cst

from ....facts.accelerator import Side
from ....facts.module import Gather
from ....facts.roles import TENSORS, Role
from ....facts.torch_api.tensor_parts import is_part
from ...dataflow.values import origins
from ...syntax.scopes import Binding
from ...syntax.walk import descendants, nodes_in
from ...training.gradient_path import GradientPath
from ..batch_shapes import batch_sizes, divided_by
from ..engine.layout import (
    holds_figure,
    holds_rows_apart,
    is_container,
)
from ..epoch_totals import Total
from ..long_results import is_long
from ..loop_step import bound, bound_by
from ..padding import ragged
from ..row_counts import counted, only_counted
from ..single_rows import not_joined, read_alone
from .step import EpochStep


class Gathers:
    """
    What can be gathered in one training loop.

    Args:
        step: what the loop runs for each batch.
        path: what a backward pass may flow through: nothing is gathered there.
    """

    def __init__(self, step: EpochStep, path: GradientPath) -> None:
        self.step, self.path = step, path
        self.state, self.unit, self.reach, self.training = step.state, step.unit, step.reach, step.training
        self.loop, self.inside, self.statements = step.loop, step.inside, step.statements
        self.losses, self.layouts = step.losses, step.layouts
        self.joint: dict[Total, cst.BaseExpression] = {}
        """The totals of a figure that the rows of one batch make together, and which that is."""
        self._made: dict[tuple[cst.CSTNode | Binding, ...], tuple[Gather | None, str | None]] = {}
        """What was found, by the first statement and what is gathered: many totals are of the same."""
        self.single = ""
        """What may have another shape on each process, so that no rows are gathered."""

    def is_gathered(self, total: Total) -> bool:
        """Whether the rows can be gathered from which a total is computed."""
        tensors = self.step.tensors_in(total)
        if total in self.joint or self.step.adds_whole(total):
            return False
        if not tensors or not all(self.step.has_rows(binding) for binding in tensors):
            return False
        if self._reads_figures(total):
            return False
        return not self._reads_containers(total) and self._gather([total]) is not None

    def _reads_containers(self, total: Total) -> bool:
        """Whether a total is computed from rows in a list or a dict, too, which are not gathered."""
        read = {b for n in self.step.names(total) if (b := self.unit.names.binding(n)) is not None}
        read |= {source for b in read for number in self.step.numbers_behind(b) for source in self.step.sources(number)}
        others = (b for b in read if not origins(self.state.binding(b), *TENSORS))
        return any(holds_rows_apart(self.layouts.of(b, self.statements)) for b in others)

    def _reads_figures(self, total: Total) -> bool:
        """Whether a total is computed from an entry of several figures of this process, too, which nothing else
        reduces: ``loss[0].item() * x.size(0)``. Beside the number of all rows it would be that of one process."""
        read = [n for n in self.step.added(total) if self.losses.loss_entry(n) is None and not self.losses.is_loss(n)]
        held = [(b, self.layouts.value(n)) for n in read if (b := self.unit.names.binding(n)) is not None]
        return any(is_container(one) and holds_figure(one) and not self.step.is_of_tensors(b) for b, one in held)

    def gather(self, totals: list[Total]) -> Gather | None:
        """One gather for several totals."""
        gather = self._gather(totals)
        return None if gather is None or self._meets_own_rows(gather) else gather

    def _gather(self, totals: list[Total]) -> Gather | None:
        names = list(dict.fromkeys(b for t in totals for b in self.step.tensors_in(t)))
        first = self._first(totals)
        if first is None:
            return None
        asked: tuple[cst.CSTNode | Binding, ...] = (first, *names)
        if asked not in self._made:
            self._made[asked] = self._from(first, names)
        gather, single = self._made[asked]
        self.single = self.single if single is None else single
        return gather

    def _from(self, first: cst.CSTNode, names: list[Binding]) -> tuple[Gather | None, str | None]:
        """One gather of some tensors, before a statement; and what it finds of other shapes, where it comes to that."""
        if self._cuts(first, names) or self._rates(first):
            return None, None
        because = "totals of the epoch are computed from {}, and each process holds only its shard"
        behind = {n for s in self.statements[self.statements.index(first) :] for n in descendants(s)}
        if any(self._reads(total, names, behind) for total in self.joint) or read_alone(self.layouts, behind):
            return None, None
        names, counts = counted(self.state, self.unit, self.training, self.loop, self.layouts, names, behind)
        objects, fields = self._fields(first, names)
        names = [one for one in names if one not in objects]
        plain = tuple(b.name for b in names)
        gather = Gather(first, plain, because, side=Side.BEFORE, counts=counts, inline=tuple(fields))
        gather = gather._replace(sized=only_counted(self.layouts, self.training, self.loop, gather, names))
        single = not_joined(self.state, self.reach, self.layouts, self.loop, [gather])
        long = partial(is_long, self.state, self.layouts, self.loop)
        left = self.path.cuts(self.unit, gather) or single or ragged(self.state, self.reach, self.loop, [gather], long)
        return None if left else gather, single

    def _reads(self, total: Total, names: list[Binding], behind: set[cst.CSTNode]) -> bool:
        """Whether some code computes what a total adds from variables, by way of others too."""
        read = [n for n in self.step.names(total) if n in behind]
        numbers = {number for n in read if (b := self.unit.names.binding(n)) for number in self.step.numbers_behind(b)}
        made = (self.statements[place] for number in numbers for place in self.step.setters.get(number, ()))
        read += [n for statement in made if statement in behind for n in nodes_in(statement, cst.Name)]
        return any(self.unit.names.binding(name) in names for name in read)

    def _meets_own_rows(self, gather: Gather) -> bool:
        """Whether the step reads what is gathered beside rows that stay those of this process, such as the output that
        a progress bar's accuracy compares the labels with."""
        whole, steps = set[Binding](), self.statements[self.statements.index(gather.node) :]
        replaced = {name for name, _ in gather.counts}
        asked: cst.CSTNode
        for part in (node for statement in steps for node in descendants(statement)):
            if isinstance(part, cst.For):
                asked, made = part.iter, bound_by(self.unit, part.target)
            elif isinstance(part, (cst.If, cst.While)):
                asked, made = part.test, []
            elif isinstance(part, cst.BaseSmallStatement):
                asked, made = part, bound(self.unit, part)
            else:
                continue
            names = (n for n in nodes_in(asked, cst.Name) if n not in replaced)
            read = {b for n in names if (b := self.unit.names.binding(n))}
            whole.update(b for b in read if b.name in gather.names)
            if whole.isdisjoint(read):
                continue
            if any(self.step.is_of_tensors(b) and self.step.has_rows(b) for b in read - whole):
                return True
            whole.update(made)
        return False

    def _cuts(self, first: cst.CSTNode, names: list[Binding]) -> bool:
        """Whether rows are cut off by position: ``y[ids[:seeds]]`` means other rows when those of all are joined."""
        for statement in self.statements[self.statements.index(first) :]:
            for node in descendants(statement):
                part = node.slice[0].slice if isinstance(node, cst.Subscript) else None
                if isinstance(part, cst.Slice) and (part.lower is not None or part.upper is not None):
                    read = {self.unit.names.binding(n) for n in nodes_in(node, cst.Name)}
                    if not read.isdisjoint(names):
                        return True
        return False

    def _fields(self, first: cst.CSTNode, names: list[Binding]) -> tuple[list[Binding], list[cst.Attribute]]:
        """Those of some names that stay as they are, as their fields are read (``g.mask`` of a graph), and these. Of an
        object it is not known whether it can be joined."""
        fields: dict[cst.Attribute, Binding] = {}
        for statement in self.statements[self.statements.index(first) :]:
            called = {call.func for call in nodes_in(statement, cst.Call)}
            for node in nodes_in(statement, cst.Attribute):
                of = self.unit.names.binding(node.value) if isinstance(node.value, cst.Name) else None
                if of in names and node not in called and not is_part(node.attr.value):
                    fields[node] = of
        return list(dict.fromkeys(fields.values())), list(fields)

    def _rates(self, first: cst.CSTNode) -> bool:
        """Whether the step divides something by its batch size, of which the rows of all are several, or shapes rows by
        it."""
        sizes = batch_sizes(self.reach, self.reach.loaders(self.loop))
        later = self.statements[self.statements.index(first) :]
        return any(divided_by(one, sizes) or self.layouts.fixes_shape(descendants(one)) for one in later)

    def _first(self, totals: list[Total]) -> cst.CSTNode | None:
        """The first statement in plain sight from which everything collected comes, if the step's training is done."""
        names = {b for t in totals for b in self.step.tensors_in(t)}
        wanted = {t.node for t in totals}
        added = (n for t in totals for n in self.step.names(t) if not self.losses.behind(n))
        figures = (b for n in added if (b := self.unit.names.binding(n)) is not None and b not in names)
        numbers = {number for figure in figures for number in self.step.numbers_behind(figure)} - names
        places = [place for node in wanted if (place := self.step.places.get(node)) is not None]
        places += [self.step.setters[b][0] for b in numbers if b in self.step.setters and self._from_batch(b)]
        needed = min(places, default=None)
        if needed is None or not self._trained_by(needed, names):
            return None
        statement = self.statements[needed]
        return statement if isinstance(statement, (cst.SimpleStatementLine, cst.For)) else None

    def _from_batch(self, binding: Binding) -> bool:
        defined_here = any(d in self.inside for d in binding.definitions)
        made_of_rows = self.step.is_of_tensors(binding) and bool(self.step.behind_number(binding))
        return defined_here and bool(made_of_rows or origins(self.state.binding(binding), Role.LOCAL))

    def _trained_by(self, position: int, names: set[Binding]) -> bool:
        """Whether nothing after a position runs the model, or computes a loss, from the gathered variables."""
        given = set(bound_by(self.unit, self.loop.target)) if isinstance(self.loop, cst.For) else ()
        known = all(b in given or self.step.setters.get(b, [position])[0] < position for b in names)
        return known and position > self.step.last_of_training
