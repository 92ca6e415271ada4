"""
Figures of a batch that its rows make together: they are not those of several batches that are joined.

Sums and counts of rows add up to the same whatever the batches are, and so do means that are weighed by the number of
rows. A mean over batches does not: joined batches are fewer, and a smaller last one weighs differently among them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import NamedTuple

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.reasons import Reason
from ...facts.reasons.metrics import CollectedMeans, JointFigure, JointRatio, ScaledMeans, SummedMeans, WeighedMeans
from ...facts.torch_api.kinds.outside import TextOf
from ...facts.torch_api.kinds.tensors import Concat, Convert, Detach, Reduce, ToHost
from ...facts.torch_api.loading import row
from ..dataflow.call_graph import reach_of
from ..dataflow.callees import method_name, outside_names
from ..dataflow.values import State, Unit
from ..syntax.definitions import bindings_value
from ..syntax.nodes import keyword
from ..syntax.walk import descendants
from ..training.schedules import follows_batches
from .constant_quotients import by_constants
from .engine.layout import (
    NORMALISED,
    Each,
    Layout,
    Partial,
    ShardRow,
    ShardSize,
    Unclear,
    held,
    inner,
    is_container,
    varies,
)
from .engine.pointwise import has_rows
from .epoch_totals import Total, collecting
from .last_batches import always_drops_last
from .loop_layouts import LoopLayouts

_DEPTH = 3
"""So many variables are followed to a ratio."""


def joint_figure(layouts: LoopLayouts, figures: Iterable[cst.BaseExpression]) -> cst.BaseExpression | None:
    """
    The first of some expressions in a loop that is a figure of one batch: a PSNR, an F1, the best row.

    ``figures``: what the loop collects, and what decides whether it does.
    """
    for figure in figures:
        layout = inner(layouts.value(figure))
        if isinstance(layout, Unclear) and layout.joint:
            return figure
        if isinstance(layout, Partial) and layout.host and layout.uneven == NORMALISED:
            return figure
    return None


class Kind(Enum):
    """What is collected of each batch."""

    RATIO = "a ratio that the script divides by hand"
    UNKNOWN = "what may be a sum over the rows, or not"
    MEAN = "a mean over the rows"
    SUM = "a mean over the rows, of which a sum over the batches is shown"
    SCALED = "a mean over the rows, of which a sum over the batches is divided by a constant"


class BatchFigure(NamedTuple):
    """Something that a loop collects of each batch and that is no sum over rows: its average depends on the batches."""

    kind: Kind
    loop: cst.For
    node: cst.CSTNode
    """The statement that collects."""
    name: str
    """Where it is collected."""
    value: str
    reason: str = ""
    """Why it is not known what it is, as a sentence."""
    filled: bool = False
    """It is a mean over the processes, of which the rows that fill up the last shard are a part."""
    weighed: bool = False
    """The script weighs it with the number of rows of the batch, as a mean over them is weighed."""
    whole: bool = False
    """The loader leaves out a last batch that is not full."""


class BatchFigures:
    """
    Finds what a loop over joined batches collects that is no sum over rows.

    Args:
        state: the solved program.
        unit: the module of the loop.
        loop: its batches are joined.
        layouts: of its values.
        gathers: what joins its batches.
    """

    def __init__(
        self, state: State, unit: Unit, loop: cst.For, layouts: LoopLayouts, gathers: Iterable[Gather]
    ) -> None:
        self.state, self.unit, self.loop, self.layouts = state, unit, loop, layouts
        self.inside = set(descendants(loop))
        self.averaged = set(self._averaged(gathers))
        """The numbers of a batch of which the mean over the processes is taken."""

    def all(self) -> Iterator[BatchFigure]:
        """One for each place that is collected in."""
        told: set[str] = set()
        for total in chain(collecting(self.state, self.unit, descendants(self.loop.body)), self._handed_out()):
            name = self._text(total.kept_in)
            asked = name not in told and self._outlives_turns(total) and self._is_read(total)
            figure = self._figure(total, name) if asked else None
            if figure is not None:
                told.add(name)
                yield figure

    def _handed_out(self) -> Iterator[Total]:
        """What a generator gives of each batch is collected by who calls it, under its name."""
        for node in descendants(self.loop.body):
            function = self.unit.names.function(node)
            if isinstance(node, cst.Yield) and isinstance(node.value, cst.BaseExpression):
                given = (
                    [part.value for part in node.value.elements] if isinstance(node.value, cst.Tuple) else [node.value]
                )
                if isinstance(function, cst.FunctionDef):
                    yield Total(node, given, function.name)

    def _figure(self, total: Total, name: str) -> BatchFigure | None:
        for value in total.value:
            ratio = self._ratio(value)
            if ratio is not None and not (self._is_unclear(ratio) and self._is_sum(value)):
                if self._is_mean(ratio):
                    return self._of_mean(total, name, ratio)
                return BatchFigure(Kind.RATIO, self.loop, total.node, name, self._text(ratio))
        weighed = any(isinstance(one, ShardSize) for value in total.value for one in self._held(value))
        for value in total.value:
            for one in self._held(value):
                filled = not self.averaged.isdisjoint(descendants(value))
                mean = isinstance(one, Partial) and (one.uneven or filled or (one.op == "mean" and not weighed))
                unclear = isinstance(one, Unclear) and not one.joint and (weighed or self._is_number(total, value))
                unclear = unclear and not self._is_of_a_row(value)
                if mean or (unclear and filled):
                    exact = filled and isinstance(one, Partial) and not one.uneven and (weighed or one.op == "sum")
                    plain = BatchFigure(Kind.MEAN, self.loop, total.node, name, self._text(value))
                    found = self._of_mean(total, name, value, weighed) if mean else plain
                    if found.kind is not Kind.MEAN:
                        return found
                    whole = always_drops_last(self.state, reach_of(self.state).loaders(self.loop))
                    return found._replace(filled=filled, weighed=exact, whole=whole)
                handed = isinstance(total.node, cst.Yield)  # what is done with it is not known
                if isinstance(one, Unclear) and unclear and not handed and not self._is_sum(value):
                    found = BatchFigure(Kind.UNKNOWN, self.loop, total.node, name, self._text(value), one.reason)
                    return found._replace(weighed=weighed or self._multiplies(value))
        return None

    def _of_mean(self, total: Total, name: str, value: cst.BaseExpression, weighed: bool = False) -> BatchFigure:
        """What the mean over the rows of each batch becomes: an average of them, or a sum that nothing divides."""
        if self._is_added_up(total):
            return BatchFigure(Kind.SUM, self.loop, total.node, name, self._text(value))
        constant = None if weighed else self._divided_by_constant(total)
        if constant is not None:
            return BatchFigure(Kind.SCALED, self.loop, total.node, name, self._text(constant))
        return BatchFigure(Kind.MEAN, self.loop, total.node, name, self._text(value))

    def _averaged(self, gathers: Iterable[Gather]) -> Iterator[cst.CSTNode]:
        for gather in gathers:
            if gather.form is Form.REDUCE and not gather.adds_up:
                yield gather.node
            means = [name for name, reduction in gather.figures if reduction != "sum"]
            yield from (node for node in self.inside if isinstance(node, cst.Name) and node.value in means)

    def _held(self, value: cst.BaseExpression) -> list[Layout]:
        return list(held(self.layouts.value(value)))

    def _text(self, node: cst.CSTNode) -> str:
        return self.unit.names.one_line(node)

    def _outlives_turns(self, total: Total) -> bool:
        """Whether what is collected in a turn of the loop is there in the next one."""
        place: cst.CSTNode = total.place
        while isinstance(place, (cst.Attribute, cst.Subscript)):
            place = place.value
        binding = self.unit.names.binding(place) if isinstance(place, cst.Name) else None
        own = set(descendants(total.node))
        anew = (d for d in binding.definitions if d in self.inside and d not in own) if binding is not None else ()
        return all(isinstance(self.unit.names.parents.get(d), cst.AugAssign) or self._is_in_a_branch(d) for d in anew)

    def _is_read(self, total: Total) -> bool:
        """Whether anything but the statement that collects reads what a variable collects, as far as that is seen."""
        binding = self.unit.names.binding(total.kept_in) if isinstance(total.kept_in, cst.Name) else None
        own = set(descendants(total.node))
        handed = isinstance(total.node, cst.Yield)
        return binding is None or handed or any(read not in own for read in binding.reads)

    def _is_in_a_branch(self, node: cst.CSTNode) -> bool:
        return any(around in self.inside for around in self.unit.names.enclosing(node, cst.If))

    def _is_sum(self, value: cst.BaseExpression, depth: int = 0) -> bool:
        """Whether the last that is done to the rows of a batch, of which nothing else is known, is to add them up."""
        if isinstance(value, cst.Name):
            binding = self.unit.names.binding(value)
            here = [d for d in binding.definitions if d in self.inside] if binding is not None else []
            made = bindings_value(self.unit.names, binding, here) if binding is not None else []
            return bool(made) and depth < _DEPTH and all(self._is_sum(one, depth + 1) for one in made)
        if not isinstance(value, cst.Call):
            return False
        kinds = kinds_of(self.state, value)
        if any(isinstance(kind, Reduce) for kind in kinds):
            sums = [kind for kind in kinds if isinstance(kind, Reduce) and kind.op in ("sum", "count")]
            known = all(not kind.sized or keyword(value, kind.sized) is not None for kind in sums)
            return known and len(sums) == len([kind for kind in kinds if isinstance(kind, Reduce)])
        operand = (
            value.func.value if isinstance(value.func, cst.Attribute) else value.args[0].value if value.args else None
        )
        same = any(isinstance(kind, (Convert, Detach, ToHost, TextOf)) for kind in kinds)
        return same and operand is not None and self._is_sum(operand, depth)

    def _multiplies(self, value: cst.BaseExpression) -> bool:
        """``score(out, y) * len(y)``."""
        product = isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Multiply)
        sides = (value.left, value.right) if isinstance(value, cst.BinaryOperation) and product else ()
        return any(isinstance(inner(self.layouts.value(side)), ShardSize) for side in sides)

    def _is_of_a_row(self, value: cst.BaseExpression) -> bool:
        """Whether a loop reads this off a list that has an entry for each row: it is of one row, whatever it is."""
        seen = self.unit.names.binding(value) if isinstance(value, cst.Name) else None
        loops = [self.unit.names.parents.get(d) for d in seen.definitions] if seen is not None else []
        lists = [
            self.layouts.value(a.iter) for a in loops if isinstance(a, (cst.For, cst.CompFor)) and a in self.inside
        ]
        return bool(loops) and len(lists) == len(loops) and all(isinstance(o, Each) and o.rows for o in lists)

    # A number, or rows ------------------------------------------------------------------------------------------------

    def _is_number(self, total: Total, value: cst.BaseExpression) -> bool:
        """Whether what is collected, of which nothing else is known, is a number of the batch and not rows of it."""
        if total.lists:
            rows = isinstance(total.node, cst.Call) and method_name(total.node) == "extend"
            return not rows and self._is_averaged(total)
        return not any(is_container(self.layouts.value(one)) for one in (total.place, value))

    def _is_averaged(self, total: Total) -> bool:
        """Whether the entries of a list are added up or averaged as numbers: ``np.mean(scores)``."""
        root: cst.CSTNode = total.kept_in
        while isinstance(root, (cst.Attribute, cst.Subscript)):
            root = root.value
        binding = self.unit.names.binding(root) if isinstance(root, cst.Name) else None
        reads = binding.reads if binding is not None else ()
        return any(self._reduces(read) or self._is_added_one_by_one(read) for read in reads)

    def _is_added_one_by_one(self, read: cst.Name) -> bool:
        """``for score in scores: total += score``, ``total = total + scores[i]``."""
        names, above = self.unit.names, self.unit.names.parents.get(read)
        entries: list[cst.CSTNode] = [above] if isinstance(above, cst.Subscript) and above.value is read else []
        if isinstance(above, cst.For) and isinstance(above.target, cst.Name):
            binding = names.binding(above.target)
            entries += binding.reads if binding is not None else ()
        return any(self._is_added(entry) for entry in entries)

    def _is_added(self, node: cst.CSTNode) -> bool:
        """Whether a number is added to a variable."""
        above = self.unit.names.parents.get(node)
        if isinstance(above, cst.AugAssign):
            return above.value is node and isinstance(above.operator, cst.AddAssign)
        assign = self.unit.names.parents.get(above) if isinstance(above, cst.BinaryOperation) else None
        if not isinstance(above, cst.BinaryOperation) or not isinstance(assign, cst.Assign):
            return False
        other = above.right if above.left is node else above.left
        return isinstance(above.operator, cst.Add) and any(t.target.deep_equals(other) for t in assign.targets)

    def _is_added_up(self, total: Total) -> bool:
        """Whether the entries of a list are shown or given as their sum, with nothing that divides it: as many as there
        are batches."""
        binding = self.unit.names.binding(total.kept_in) if isinstance(total.kept_in, cst.Name) else None
        if not total.lists or binding is None:
            return False
        return any(self._is_sum_alone(read) for read in binding.reads)

    def _divided_by_constant(self, total: Total) -> cst.BaseExpression | None:
        """The constant that what is added up in a variable is divided by after the loop."""
        place = total.place
        binding = self.unit.names.binding(place) if isinstance(place, cst.Name) else None
        if binding is None or total.lists:
            return None
        if not follows_batches(reach_of(self.state), self.loop):
            return None  # it ends after so many batches as are written out, on any number of processes
        return next((d for d in by_constants(self.state, self.unit, binding, self.inside) if d is not None), None)

    def _is_sum_alone(self, read: cst.Name) -> bool:
        added = False
        for around in self.unit.names.ancestors(read):
            if isinstance(around, (cst.BinaryOperation, cst.Assign, cst.AugAssign)):
                return False  # it is divided there, or may be later
            if isinstance(around, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
                return added
            if isinstance(around, cst.Call) and not added:
                added = method_name(around) == "sum" and len(around.args) == 1 and around.args[0].value is read
        return added

    def _reduces(self, read: cst.Name) -> bool:
        for around in self.unit.names.ancestors(read):
            if isinstance(around, (cst.BaseSmallStatement, cst.BaseCompoundStatement)):
                return False
            if isinstance(around, cst.Call):
                kinds = kinds_of(self.state, around)
                if any(isinstance(kind, Concat) and not kind.new for kind in kinds):
                    return False  # it joins rows
                if any(isinstance(kind, Reduce) for kind in kinds) or method_name(around) == "sum":
                    return True
        return False

    def _is_mean(self, ratio: cst.BinaryOperation) -> bool:
        """Whether a sum over the rows of a batch is divided by their number: ``(out == y).sum() / len(y)``."""
        given, count = (inner(self.layouts.value(side)) for side in (ratio.left, ratio.right))
        return isinstance(given, Partial) and given.op == "sum" and isinstance(count, ShardSize) and not count.chosen

    def _is_unclear(self, ratio: cst.BinaryOperation) -> bool:
        """Whether nothing is known of a half of a ratio: it may be one of each row."""
        return any(isinstance(inner(self.layouts.value(side)), Unclear) for side in (ratio.left, ratio.right))

    # Ratios -----------------------------------------------------------------------------------------------------------

    def _ratio(self, value: cst.BaseExpression, depth: int = 0) -> cst.BinaryOperation | None:
        """The division of one figure of a batch by another from which a value is computed, if that is no sum of
        rows."""
        layout = inner(self.layouts.value(value))
        if depth > _DEPTH or (isinstance(layout, Partial) and layout.op == "sum"):
            return None
        for part in descendants(value):
            if isinstance(part, cst.BinaryOperation) and isinstance(part.operator, cst.Divide):
                sides = [inner(self.layouts.value(side)) for side in (part.left, part.right)]
                if all(varies(side) and not has_rows(side) and not isinstance(side, ShardRow) for side in sides):
                    return part
            binding = self.unit.names.binding(part) if isinstance(part, cst.Name) else None
            here = [d for d in binding.definitions if d in self.inside] if binding is not None else []
            for made in bindings_value(self.unit.names, binding, here) if binding is not None else ():
                ratio = self._ratio(made, depth + 1)
                if ratio is not None:
                    return ratio
        return None


def kinds_of(state: State, call: cst.Call) -> list[object]:
    """What the tables say of a call, taken for a method of a tensor as well."""
    called = outside_names(state.calls[call]) if call in state.calls else []
    last = method_name(call)
    method = "torch.Tensor" if isinstance(call.func, cst.Attribute) else "builtins"
    return [kind.transfer for name in (*called, f"{method}.{last}") if (kind := row(name)) is not None]


def told(figures: Iterable[BatchFigure], known: Container[cst.CSTNode]) -> Iterator[Reason]:
    """The findings for what loops collect; ``known``: statements for which a finding says more."""
    means: dict[cst.For, list[BatchFigure]] = {}
    for figure in figures:
        if figure.node in known:
            continue
        if figure.kind is Kind.MEAN:
            means.setdefault(figure.loop, []).append(figure)
        elif figure.kind is Kind.SUM:
            yield SummedMeans(figure.node, figure.name)
        elif figure.kind is Kind.SCALED:
            yield ScaledMeans(figure.node, figure.name, figure.value)
        elif figure.kind is Kind.RATIO:
            yield JointRatio(figure.node, figure.name, figure.value)
        else:
            yield JointFigure(figure.node, figure.name, figure.value, figure.reason, figure.weighed)
    for collected in means.values():
        plain, weighed = ([f for f in collected if f.weighed is kind] for kind in (False, True))
        if plain:
            filled, whole = any(f.filled for f in plain), all(f.filled and f.whole for f in plain)
            yield CollectedMeans(plain[0].node, tuple(f.name for f in plain), filled, whole)
        if weighed:
            yield WeighedMeans(weighed[0].node, tuple(f.name for f in weighed))
