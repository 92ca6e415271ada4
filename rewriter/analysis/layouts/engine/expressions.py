"""The layouts of expressions; of calls elsewhere."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import libcst as cst

from ....facts.torch_api import tensor_parts
from ...syntax.nodes import dotted, entry_key, is_none
from ...syntax.scopes import Binding
from ...syntax.walk import nodes_in
from .layout import (
    CHOSEN,
    NEUTRAL,
    REPLICATED,
    TRUTH,
    Absent,
    Each,
    Foreign,
    Layout,
    Made,
    Partial,
    Replicated,
    Several,
    Shape,
    Shard,
    ShardRow,
    ShardSize,
    Unclear,
    Whole,
    WholeCount,
    across_rows,
    beside,
    inner,
    join,
    join_all,
    on_each_path,
    reduces,
    settled,
    varies,
)
from .memory import Memory
from .narrowing import AskedType, asked_type
from .operations import collected, elements, sized
from .pointwise import (
    averaged,
    bent,
    compared,
    is_count,
    masking,
    normalised,
    of_fixed_size,
    pointwise,
    summed_and_averaged,
    unclear,
)
from .shapes import indexed, integer, product, transposed

MOST = 60_000
"""Expressions: a program that takes more is left alone."""


class Expressions(Memory):
    """Says of each expression where its rows are."""

    @abstractmethod
    def _result(self, node: cst.Call) -> Layout:
        """The layout of what a call gives."""

    @abstractmethod
    def _outside(self, binding: Binding) -> Layout:
        """The layout of a variable that something before the walk has set."""

    def _eval(self, node: cst.CSTNode) -> Layout:
        found = self.seeds.rows.get(node)
        if found is not None:
            return Unclear("it is cut twice", node) if self._is_cut(node) else self._cut(node, found)
        if self.seeds.sizes and dotted(node) in self.seeds.sizes:
            own = self._of_name(node) if isinstance(node, cst.Name) else REPLICATED
            # `batch_size = x.size(0)`; a parameter stands for what the call gives
            return own if isinstance(own, (ShardSize, WholeCount)) else WholeCount(node=node)
        self._steps += 1
        if self._steps > MOST:
            return Unclear("the program is too large to follow", node)
        method = getattr(self, f"_of_{node.__class__.__name__.lower()}", None)
        layout: Layout = method(node) if method is not None else REPLICATED
        self._note(node, layout)
        return layout

    def _is_cut(self, node: cst.CSTNode) -> bool:
        """Whether what is to be cut holds rows of one process already."""
        if isinstance(node, cst.Name):
            return False
        bindings = (self._unit.names.binding(n) for n in nodes_in(node, cst.Name))
        held = (self.values.get(binding) for binding in bindings if binding is not None)
        return any(isinstance(inner(layout), (Shard, ShardRow)) for layout in held if layout is not None)

    def _cut(self, node: cst.CSTNode, shard: Layout) -> Layout:
        """The shard of what is cut: of a mask it is one."""
        if not isinstance(shard, Shard) or not isinstance(node, (cst.Name, cst.Subscript)):
            return shard
        whole = inner(self._of_name(node) if isinstance(node, cst.Name) else self._of_subscript(node))
        return masking(shard) if isinstance(whole, Replicated) and whole.mask else shard

    def _of_integer(self, node: cst.Integer) -> Layout:
        return NEUTRAL

    def _of_float(self, node: cst.Float) -> Layout:
        return NEUTRAL

    def _of_name(self, node: cst.Name) -> Layout:
        if node.value == "None":
            return NEUTRAL
        if node.value in ("True", "False"):
            return TRUTH
        binding = self._unit.names.binding(node)
        if binding is None:
            return REPLICATED
        return self.values[binding] if binding in self.values else self._outside(binding)

    def _of_tuple(self, node: cst.Tuple | cst.List) -> Layout:
        if any(isinstance(element, cst.StarredElement) for element in node.elements):
            return Each(join_all(inner(self._eval(element.value)) for element in node.elements))
        items = tuple(self._eval(element.value) for element in node.elements)
        if items or isinstance(node, cst.Tuple):
            return Several(items)
        return Each(NEUTRAL)

    _of_list = _of_tuple

    def _of_dict(self, node: cst.Dict) -> Layout:
        keys = [e.key for e in node.elements if isinstance(e, cst.DictElement)]
        if not node.elements:
            return Several(())  # to be filled: its entries are known as long as their keys are written out
        names = tuple(str(key.evaluated_value) for key in keys if isinstance(key, cst.SimpleString))
        if names and len(set(names)) == len(node.elements):
            return Several(tuple(self._eval(element.value) for element in node.elements), names)
        return Each(join_all(inner(self._eval(element.value)) for element in node.elements))

    def _of_unaryoperation(self, node: cst.UnaryOperation) -> Layout:
        return self._eval(node.expression)

    def _of_binaryoperation(self, node: cst.BinaryOperation) -> Layout:
        return self._arithmetic(self._eval(node.left), self._eval(node.right), node.operator, node)

    def _of_booleanoperation(self, node: cst.BooleanOperation) -> Layout:
        return join(self._eval(node.left), self._eval(node.right))

    def _of_comparison(self, node: cst.Comparison) -> Layout:
        held = [self._eval(node.left), *(self._eval(c.comparator) for c in node.comparisons)]
        among = isinstance(node.comparisons[0].operator, (cst.In, cst.NotIn))
        if among and isinstance(held[1], Each) and held[1].rows:
            return Unclear("it looks for a value among those of several rows", node, joint=True)
        return masking(pointwise(held, node))

    def _of_ifexp(self, node: cst.IfExp) -> Layout:
        passes = self._passes(node.test)
        if passes is not None:
            return self._eval(node.body if passes else node.orelse)
        with self._knowing(node.test, met=True):
            met = self._eval(node.body)
        with self._knowing(node.test, met=False):
            return join(met, self._eval(node.orelse))

    def _passes(self, test: cst.BaseExpression) -> bool | None:
        """Whether a condition is met in this call; None where that is not known."""
        if (known := self._asked_type(test)) is not None:
            asked, _, layout = known
            for met in (True, False):
                if asked.left(layout, met=met) is None:
                    return not met
        given = self._is_given(test)
        return self.constants.holds(self._unit, test, self._frame) if given is None else given

    def _asked_type(self, test: cst.BaseExpression) -> tuple[AskedType, Binding, Layout] | None:
        """What a condition asks of the type of a variable that has a layout; None where it asks something else."""
        asked = asked_type(self.state, test)
        binding = self._unit.names.binding(asked.name) if asked is not None else None
        layout = self.values.get(binding) if binding is not None else None
        return (asked, binding, layout) if asked is not None and binding is not None and layout is not None else None

    @contextmanager
    def _knowing(self, test: cst.BaseExpression, *, met: bool, lasts: bool = False) -> Iterator[None]:
        """Go on where a condition is met, or where it is not; ``lasts``: what is known then stays so."""
        known = self._asked_type(test)
        left = known[0].left(known[2], met=met) if known is not None else None
        if known is None or left is None or left == known[2]:
            yield
            return
        _, binding, layout = known
        self._set(binding, left)
        yield
        if self.values.get(binding) is left and not lasts:
            self._set(binding, layout)

    def _is_given(self, test: cst.BaseExpression) -> bool | None:
        """Whether ``if y is not None`` of a parameter passes in this call; None where that is not known."""
        compared = test.comparisons[0] if isinstance(test, cst.Comparison) and len(test.comparisons) == 1 else None
        if not isinstance(test, cst.Comparison) or compared is None or not is_none(compared.comparator):
            return None
        binding = self._unit.names.binding(test.left) if isinstance(test.left, cst.Name) and self._inside else None
        given = self.values.get(binding) if binding is not None else None
        if binding is None or not all(isinstance(d, cst.Param) for d in binding.definitions):
            return None
        if not isinstance(given, (Absent, Shard)) or not isinstance(compared.operator, (cst.Is, cst.IsNot)):
            return None
        return isinstance(given, Absent) is isinstance(compared.operator, cst.Is)

    def _of_namedexpr(self, node: cst.NamedExpr) -> Layout:
        layout = self._eval(node.value)
        self._assign(node.target, layout)
        return layout

    def _of_yield(self, node: cst.Yield) -> Layout:
        if self._yielded and isinstance(node.value, cst.BaseExpression):
            self._yielded[-1].append(self._eval(node.value))
        return REPLICATED

    def _of_listcomp(self, node: cst.BaseSimpleComp) -> Layout:
        source = self._clauses(node.for_in)
        found = collected(source, self._eval(node.elt))
        chosen = any(varies(self._eval(test.test)) for clause in _each_clause(node.for_in) for test in clause.ifs)
        if chosen and isinstance(found, (Shard, Each)) and across_rows(found):
            return (
                replace(found, uneven=CHOSEN, chosen=True)
                if isinstance(found, Shard)
                else replace(found, uneven=CHOSEN)
            )
        return found

    _of_generatorexp = _of_setcomp = _of_listcomp

    def _of_dictcomp(self, node: cst.DictComp) -> Layout:
        self._clauses(node.for_in)
        return Each(inner(self._eval(node.value)))

    def _clauses(self, clause: cst.CompFor) -> Layout:
        source = self._eval(clause.iter)
        self._assign(clause.target, elements(source, clause.iter))
        if clause.inner_for_in is not None:
            self._clauses(clause.inner_for_in)
        return source

    def _of_attribute(self, node: cst.Attribute) -> Layout:
        name = node.attr.value
        base = self._eval(node.value)
        if isinstance(base, Several) and name in base.names:
            return base.items[base.names.index(name)]
        if isinstance(inner(base), (Shard, ShardRow, Partial, Unclear, Whole)):
            return self._of_tensor(base, name, node)
        if isinstance(base, Foreign) and not tensor_parts.describes(name) and name != "shape":
            return base  # `solve(x).logits`, `solve(x).T`
        return self.fields.get(name, REPLICATED)

    def _of_tensor(self, base: Layout, name: str, node: cst.Attribute) -> Layout:
        held = settled(base, node)
        if name == "shape" and isinstance(held, Each):
            held = inner(held)  # no list has a shape: the batch is one tensor
        if isinstance(held, Shard):
            if name == "shape":
                return Shape(held)
            if name in ("T", "mT"):
                return transposed(held, node)
        if name in ("data", "real"):
            return held
        if tensor_parts.describes(name) or name == "grad":
            return REPLICATED
        if isinstance(held, Each) and held.table:
            return inner(held)  # `encoded.input_ids`
        return (
            held
            if isinstance(held, (Unclear, Each, Several, ShardRow))
            else Unclear(f"what `.{name}` is cannot be told", node)
        )

    def _of_subscript(self, node: cst.Subscript) -> Layout:
        value = self._eval(node.value)
        parts = [element.slice for element in node.slice]
        if isinstance(value, Shape):
            self._has_dimension(node.value, integer(parts[0].value) if isinstance(parts[0], cst.Index) else None)
        if isinstance(value, Several) and value.names and (key := entry_key(node)):
            return value.items[value.names.index(key)] if key in value.names else REPLICATED
        layouts = [self._eval(part.value) if isinstance(part, cst.Index) else self._bounds(part) for part in parts]
        found = on_each_path(value, lambda one: _taken(one, parts, layouts, node), node)
        picks = isinstance(value, Foreign) or _picks_rows(parts[0], layouts[0])
        return self._foreign(found) if picks else found

    def _foreign(self, layout: Layout) -> Layout:
        """What a turn takes from somewhere, beside the batch that is cut: it may have as many rows as the whole batch.
        In a model's own code it is a mask, or a table of places."""
        return Foreign() if self.seeds.cut and self._is_of_turn() and isinstance(layout, Replicated) else layout

    def _is_of_turn(self) -> bool:
        """Whether what is evaluated is of a turn's own, and not of a model's code or of what was there before."""
        in_module = any(isinstance(above, cst.ClassDef) for code in self._inside for above in self._around(code))
        return not self._before_turns and not in_module

    def _around(self, code: cst.CSTNode) -> Iterator[cst.CSTNode]:
        return self.reach.unit(code).names.ancestors(code)

    def _bounds(self, part: cst.BaseSlice) -> Layout:
        ends = [part.lower, part.upper] if isinstance(part, cst.Slice) else []
        found = [self._eval(end) for end in ends if end is not None]
        shards = [one for one in found if isinstance(one, (ShardRow, Unclear))]
        return shards[0] if shards else REPLICATED

    def _arithmetic(self, left: Layout, right: Layout, operator: cst.CSTNode, node: cst.CSTNode) -> Layout:
        if isinstance(left, (Several, Each)) or isinstance(right, (Several, Each)):
            if isinstance(left, Several) and isinstance(right, Several):
                return Several(left.items + right.items)
            if isinstance(operator, cst.Multiply) and not varies(right):
                return Each(inner(left))  # `[False] * n`
            return beside(left, right)
        left, right = settled(left, node), settled(right, node)
        if isinstance(left, Unclear) and left.squared and isinstance(operator, cst.Power) and _is_two(node):
            return left.squared
        kind = type(operator).__name__.removesuffix("Assign")
        if self.seeds.cut and (clash := of_fixed_size((left, right), node, alike=False)) is not None:
            return clash
        mean = averaged(left, right) if kind == "Multiply" else None
        if mean is not None:
            return mean
        if (
            kind == "Divide"
            and isinstance(left, (Partial, Shard))
            and not isinstance(right, ShardSize)
            and reduces(right)
        ):
            return normalised(left)
        lost = unclear((left, right), node)
        if lost is not None and kind == "Divide":
            own = left.near if isinstance(left, Unclear) else left.op if isinstance(left, Partial) else ""
            if own == "sum" and isinstance(right, Partial) and not self.seeds.cut:
                return normalised(right)  # whatever is summed, a loss of a loader's batch is averaged
            if own == "sum" and not isinstance(right, Replicated):
                own = "mean" if is_count(right) or isinstance(right, Partial) else ""
            return replace(lost, near=own)
        if lost is not None:
            return lost
        if kind == "MatrixMultiply" and (isinstance(left, Shard) or isinstance(right, Shard)):
            return product(left, right, False, node)
        if isinstance(left, Partial) or isinstance(right, Partial):
            return _of_terms(left, right, kind, node)
        counts = [one for one in (left, right) if isinstance(one, WholeCount)]
        if counts and kind == "Multiply" and isinstance(left, Replicated) and isinstance(right, Replicated):
            return counts[0]
        if isinstance(left, ShardSize) or isinstance(right, ShardSize):
            other = right if isinstance(left, ShardSize) else left
            if isinstance(other, Replicated) and kind in ("Multiply", "FloorDivide", "Divide"):
                whole = isinstance(left, ShardSize) or kind == "Multiply"
                return ShardSize() if whole else Unclear("a part of the number of rows", node, per_row=kind == "Divide")
        found = pointwise([left, right], node)
        return masking(found) if kind in _OF_MASKS and _is_mask(left) and _is_mask(right) else found

    def _of_call(self, node: cst.Call) -> Layout:
        layout = self._result(node)
        self.given[node] = join(self.given[node], layout) if node in self.given else layout
        return layout


_OF_MASKS = ("BitAnd", "BitOr", "BitXor")


def _is_mask(layout: Layout) -> bool:
    return isinstance(layout, (Shard, Replicated)) and layout.mask


def _taken(value: Layout, index: list[cst.BaseSlice], layouts: list[Layout], node: cst.Subscript) -> Layout:
    """What an index takes from a value on one path, or from its shape."""
    if not isinstance(value, Shape):
        return indexed(value, index, layouts, node)
    first = index[0]
    return sized(value.of, integer(first.value)) if isinstance(first, cst.Index) else Unclear("a part of a shape", node)


def _each_clause(clause: cst.CompFor | None) -> Iterator[cst.CompFor]:
    while clause is not None:
        yield clause
        clause = clause.inner_for_in


def _picks_rows(part: cst.BaseSlice, layout: Layout) -> bool:
    """Whether the first index takes rows of a table: a slice whose bounds are computed, or places that are drawn."""
    if isinstance(part, cst.Slice):
        ends = [end for end in (part.lower, part.upper) if end is not None]
        return len(ends) == 2 and not all(isinstance(end, (cst.Integer, cst.UnaryOperation)) for end in ends)
    return isinstance(layout, (Foreign, Made))


def _is_two(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.BinaryOperation) and integer(node.right) == 2


def _of_terms(left: Layout, right: Layout, kind: str, node: cst.CSTNode) -> Layout:
    """Arithmetic with a mean or a sum over the rows of this process."""
    one, other = (left, right) if isinstance(left, Partial) else (right, left)
    assert isinstance(one, Partial)
    if kind in ("Add", "Subtract"):
        if isinstance(other, Partial):
            same = one.op == other.op
            return join(one, other) if same else summed_and_averaged(node)
        if isinstance(other, Replicated) and (other.neutral or one.op == "mean"):
            return one
        if isinstance(other, Replicated):
            reason = "it adds a sum over the rows and a term that does not depend on them"
            return Unclear(reason, node, near="sum")
    if (
        kind in ("Multiply", "Divide", "FloorDivide")
        and isinstance(other, Replicated)
        and (kind == "Multiply" or one is left)
    ):
        return one
    if isinstance(other, ShardSize):
        if kind == "Divide" and one is left and one.op == "sum":
            return replace(one, op="mean")
        if kind == "Divide" and one is left and one.op == "mean" and one.host is False:  # linear, if smaller
            reason = "a mean over the rows is divided by their number once more"
            return Unclear(reason, node, joint=True, near="mean")
        if kind == "Multiply" and one.op == "mean":
            return replace(one, op="sum")
    if isinstance(other, Shard):
        return compared(node)
    return bent(node, *(part for part in (left, right) if isinstance(part, Partial)))
