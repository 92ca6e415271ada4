"""The layouts of what calls give: operations of the tables, builtins, containers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import libcst as cst

from ....facts.container_methods import adds, adds_elements, takes_out
from ....facts.reasons import called
from ....facts.roles import Role
from ....facts.torch_api import questions
from ....facts.torch_api.kinds import outside, tensors
from ....facts.torch_api.kinds import training as kinds
from ....facts.torch_api.loading import row, transfer
from ...dataflow.callees import made_names, method_name, outside_names
from ...dataflow.records import record_fields
from ...dataflow.values import CallRecord, External, Function, origins
from ...syntax.nodes import dotted
from ..loss_arguments import asked_reduction
from .arguments import Arguments
from .layout import (
    CHOSEN,
    NEUTRAL,
    REPLICATED,
    Each,
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
    WholeCount,
    across_rows,
    as_rows,
    held,
    inner,
    join,
    join_all,
    on_each_path,
    parts,
    settled,
    varies,
)
from .memory import without_entry
from .models import Models
from .narrowing import only_tensor
from .operations import applied, collected, elements, made, typed
from .pointwise import has_rows, meeting

_CONTAINERS = (list, tuple, dict)
_BUILTINS = frozenset(
    "len zip enumerate range sum list tuple set frozenset reversed isinstance print type hasattr id str repr".split()
) | {"map", "filter"}
_SETS = frozenset({"set", "frozenset"})
_ASKS = frozenset("isinstance print type hasattr id str repr".split())
_SAME_VALUES = (tensors.Same, tensors.Detach, tensors.Convert, tensors.ToHost, tensors.Reshape)
_TAKES = frozenset("items values keys get pop copy popleft setdefault".split())


class Calls(Models):
    """Follows calls."""

    def _result(self, node: cst.Call) -> Layout:
        record = self.state.calls.get(node)
        name = method_name(node)
        base = self._eval(node.func.value) if isinstance(node.func, cst.Attribute) else None
        if name == "backward" and base is not None:
            self.backwards[node] = join(self.backwards[node], base) if node in self.backwards else base
            return REPLICATED
        if record is None:
            return REPLICATED
        closure = self._closure(record)
        if closure is not None:
            return closure
        given = self._given(node)
        if origins(self.state.values.get(node.func), Role.MODEL):
            self.fed.setdefault(node, []).extend(given.layouts())
            if self.seeds.models and any(has_rows(inner(layout)) for layout in given.layouts()):
                return self._rows_for_rows(record, given)
        functions = self._run_by(record)
        if functions:
            layers, waited = self._layers_beside(record), self._recursion.unanswered
            found = join_all(self._call(function, record, given) for function in functions)
            if layers:  # what a wrapper of layers gives is what they give, and not only what it gives itself
                self._recursion.unanswered = waited
            return join_all([found, *(self._module(layer, given) for layer in layers)])
        fields = () if any(arg.star for arg in node.args) else record_fields(self.state, record)
        if fields:
            named = dict(zip(fields, given.plain, strict=False)) | given.named
            return Several(tuple(named[field][1] if field in named else NEUTRAL for field in fields), fields)
        container = self._container(node, name, base, given)
        if container is not None:
            return container
        modules = origins(self.state.values.get(node.func), Role.MODEL, Role.CRITERION)
        if modules and not isinstance(inner(base or REPLICATED), (Shard, ShardRow)):
            return join_all(self._module(module, given) for module in modules)
        return self._external(node, record, name, base, given)

    def _given(self, node: cst.Call) -> Arguments:
        unit, frame = self._unit, self._frame
        given = Arguments(
            node,
            lambda name, position: self.constants.argument(unit, node, name, position, frame),
            lambda value: self.constants.of(unit, value, frame),
        )
        for arg in node.args:
            layout = self._eval(arg.value)
            if arg.star == "*" and isinstance(layout, Several):
                given.plain.extend((arg.value, item) for item in layout.items)
            elif arg.star == "**" and isinstance(layout, Several) and layout.names:
                given.named.update(
                    (name, (arg.value, one)) for name, one in zip(layout.names, layout.items, strict=True)
                )
            elif arg.star == "**":
                given.named["**"] = arg.value, inner(layout)
            elif arg.star:
                given.plain.append((arg.value, layout))
            elif arg.keyword is not None:
                given.named[arg.keyword.value] = arg.value, layout
            else:
                given.plain.append((arg.value, layout))
        return given

    def _closure(self, record: CallRecord) -> Layout | None:
        """``optimizer.step(closure)``: the closure runs."""
        if not origins(record.receiver, Role.OPTIMIZER) or record.first is None:
            return None
        functions = [thing for thing in record.first.things if isinstance(thing, Function)]
        if not functions:
            return None
        return join_all(self._call(f.node, record, Arguments(record.node)) for f in functions)

    def _external(self, node: cst.Call, record: CallRecord, name: str, base: Layout | None, given: Arguments) -> Layout:
        method = f"torch.Tensor.{name}"
        if base is not None and row(method) is not None and not any(hasattr(kind, name) for kind in _CONTAINERS):
            base = only_tensor(base)
        shaped = questions.asks_shape_alone(method) or _is_sized_by_batch(method, given)
        tensor = base is not None and (varies(base) or shaped)
        if tensor:
            given.base = base
        handed = [one for layout in (*given.layouts(), base or REPLICATED) for one in parts(layout)]
        if (met := meeting(handed, node)) is not None:
            return met
        compares = any(isinstance(transfer(full, kinds.Loss), kinds.Loss) for full in outside_names(record))
        if self.seeds.cut and (clash := self._clash(node, given, alike=compares)) is not None:
            return clash
        if name == "scale" and len(given.plain) == 1 and origins(record.receiver, Role.SCALER):
            return given.plain[0][1]  # times a number that is the same for all rows
        of_array = f"numpy.ndarray.{name}"  # what a tensor does not have, ``out.cpu().numpy().astype(int)``
        of_tensor = [method] if row(method) is not None else [method, of_array]
        names = of_tensor if tensor else [*outside_names(record), *made_names(record), f"builtins.{name}"]
        if base is not None and questions.creates(method):
            names.append(method)  # `weight.new_zeros(1, rows, 8)`, whatever `weight` is
        if isinstance(node.func, cst.Name) and name in _BUILTINS and self._unit.names.binding(node.func) is None:
            return self._builtin(name, given)
        for full in names:
            found = row(full)
            sized = questions.is_tensor_type(full) and _is_shape(given.layouts())
            layout = made(given) if sized else applied(found.transfer, given) if found is not None else None
            if layout is not None:
                kind = found.transfer if found is not None else None
                self._note_number(kind, given)
                if isinstance(kind, kinds.Loss):
                    layout = self._one_number(layout, asked_reduction(given.constant, kind))
                drawn = isinstance(kind, tensors.Random) and not _is_one_row(layout)
                return self._drawn(layout) if drawn else layout
        held = [inner(layout) for layout in given.layouts()]
        self._note_shown(node, held)
        if not any(varies(layout) for layout in held):
            known = any(row(full) is not None for full in (*names, method))
            kept = (
                isinstance(base, Replicated)
                and base.mask
                and any(transfer(method, kind) is not None for kind in _SAME_VALUES)
            )
            own = Replicated(mask=kept)
            return typed(own, given) if known else self._foreign(REPLICATED)
        unknown = next((one for one in held if isinstance(one, Unclear)), None)
        if unknown is not None:
            return unknown
        of_several = any(isinstance(layout, Each) and layout.rows for layout in given.layouts())
        if all(isinstance(one, (ShardRow, Replicated)) for one in held) and not of_several:
            return ShardRow()
        if all(isinstance(one, (ShardSize, Replicated)) for one in held):
            return held[0] if name in ("int", "float", "max", "min") else REPLICATED
        text = dotted(node.func) or name or called(node.func)
        return Unclear(f"what `{text}` does with the rows of the batch is not known", node)

    def _drawn(self, layout: Layout) -> Layout:
        """Random numbers that a turn draws: rows of its own for each process, as many as a batch has or another number;
        in a batch that is cut, perhaps as many as the whole of it."""
        rows = self.seeds.models and self._is_of_turn() and isinstance(layout, Made) and len(layout.sizes) > 1
        return Shard(0, len(layout.sizes)) if rows and isinstance(layout, Made) else self._foreign(layout)

    def _note_number(self, kind: object, given: Arguments) -> None:
        """``out.item()``, ``float(out)``: what was taken for rows has one number."""
        read = isinstance(kind, tensors.ToHost) and kind.gives == "number"
        if read or (isinstance(kind, outside.TextOf) and kind.host):
            for rows in held(given.operand()):
                giver = rows.assumed.node if isinstance(rows, Shard) and rows.assumed is not None else None
                while giver is not None and giver not in self.numbers:
                    self.numbers[giver] = None
                    giver = self.taken_out.get(giver)

    def _note_shown(self, node: cst.Call, held: Iterable[Layout]) -> None:
        if any(isinstance(one, Shard) for one in held) and isinstance(self._unit.names.parents.get(node), cst.Expr):
            self.shown[node] = None

    def _builtin(self, name: str, given: Arguments) -> Layout:
        held = given.layouts()
        first = held[0] if held else REPLICATED
        if name == "len":
            return _length(first, given.node)
        if name in _ASKS:
            self._note_shown(given.node, [inner(layout) for layout in held])
            return REPLICATED
        if name == "range":
            return Shard(0) if any(isinstance(one, ShardSize) for one in held) else REPLICATED
        if name == "enumerate":
            return self._paired(Several((REPLICATED, elements(first, given.node))), first)
        if name == "zip":
            if [arg.star for arg in given.node.args] == ["*"] and isinstance(first, Each) and first.rows:
                return Each(Each(inner(first), rows=True, uneven=first.uneven))  # the columns of a list of rows
            return self._paired(Several(tuple(elements(one, given.node) for one in held)), *held)
        if name in ("map", "filter") and len(held) > 1:
            return self._for_each(name, given)
        if name in _SETS:
            listed = as_rows(first)
            return Each(ShardRow(), rows=True, distinct=True) if across_rows(listed) else first
        if name == "sum":
            first = as_rows(first)
            found = settled(inner(first), given.node)
            if isinstance(first, Shard):
                return (
                    Partial("sum", host=first.host)
                    if first.dim == 0
                    else Unclear("a sum over another dimension", given.node)
                )
            return (
                found
                if isinstance(found, (Partial, Replicated, Unclear, Shard))
                else Unclear("the terms that sum() adds are not known", given.node)
            )
        return first

    def _for_each(self, name: str, given: Arguments) -> Layout:
        """``map(function, x, y)`` and ``filter(function, x)``: the function runs for each entry."""
        sources = given.layouts()[1:]
        node, source = given.node, sources[0]
        if name == "map" and isinstance(source, Several) and len(sources) == 1:
            return Several(tuple(self._handed_to(node, [item]) for item in source.items))
        entries = [elements(one, node) for one in sources]
        result = self._handed_to(node, entries)
        if name == "filter":
            listed = collected(source, entries[0])
            chosen = varies(result) and across_rows(listed)
            if chosen and isinstance(listed, Shard):
                return replace(listed, uneven=CHOSEN, chosen=True)
            return replace(listed, uneven=CHOSEN) if chosen and isinstance(listed, Each) else listed
        return collected(source, result) if len(sources) == 1 else Each(result, rows=any(map(across_rows, sources)))

    def _handed_to(self, node: cst.Call, layouts: list[Layout]) -> Layout:
        """What the function that is the first argument of a call gives for some values."""
        slot, given = self.state.values.get(node.args[0].value), node.args[0].value
        functions = [thing for thing in (slot.things if slot is not None else ()) if isinstance(thing, Function)]
        if functions:
            return join_all(self._run(function, layouts, {}, method=False) for function in functions)
        outside = [
            thing.qualified for thing in (slot.things if slot is not None else ()) if isinstance(thing, External)
        ]
        if isinstance(given, cst.Name) and self._unit.names.binding(given) is None:
            outside = [f"builtins.{given.value}"]
        for qualified in outside:
            values = [(cst.Name("x"), layout) for layout in layouts]
            call = cst.Call(cst.Name(qualified.rpartition(".")[2]), [cst.Arg(value) for value, _ in values])
            known = row(qualified)
            found = applied(known.transfer, Arguments(call, plain=list(values))) if known is not None else None
            if found is not None:
                return found
        text = dotted(given) or "map"
        rows = any(varies(layout) for layout in layouts)
        return Unclear(f"what `{text}` does with the rows of the batch is not known", node) if rows else REPLICATED

    def _paired(self, element: Several, *sources: Layout) -> Layout:
        return (
            Each(element, rows=any(map(across_rows, sources)))
            if any(varies(item) for item in element.items) or not sources
            else Each(REPLICATED)
        )

    def _container(self, node: cst.Call, name: str, base: Layout | None, given: Arguments) -> Layout | None:
        """Methods of lists and dicts."""
        if base is None or not isinstance(node.func, cst.Attribute):
            return None
        held = isinstance(base, (Each, Several)) or (isinstance(base, Replicated) and base.neutral)
        if adds_elements(name) and (held or isinstance(base, Replicated)) and given.plain:
            value = given.plain[-1][1]
            if varies(value) or held:
                self._grow(node.func.value, base, value)
            return REPLICATED
        if (adds(name) or takes_out(name)) and isinstance(base, Several) and (base.names or not base.items):
            return self._change(node, name, base, given)
        if name in _TAKES and held:
            return (
                Each(Several((REPLICATED, inner(base))))
                if name == "items"
                else (inner(base) if name in ("get", "pop", "popleft", "setdefault") else base)
            )
        return None

    def _change(self, node: cst.Call, name: str, table: Several, given: Arguments) -> Layout:
        """What a method gives that adds entries to a table, or takes one out: ``losses.update(parts)``."""
        assert isinstance(node.func, cst.Attribute)
        first, layout = given.plain[0] if given.plain else (None, None)
        key = str(first.evaluated_value) if isinstance(first, cst.SimpleString) else ""
        if name == "pop" and key in table.names:
            self._assign(node.func.value, without_entry(table, key))
            return table.items[table.names.index(key)]
        if name == "setdefault" and key in table.names:
            return table.items[table.names.index(key)]
        if name == "update" and isinstance(layout, Several) and layout.names and not given.named:
            entries = dict(zip(table.names, table.items, strict=True)) | dict(
                zip(layout.names, layout.items, strict=True)
            )
            self._assign(node.func.value, Several(tuple(entries.values()), tuple(entries)))
            return REPLICATED
        value = join_all((inner(table), *map(inner, given.layouts())))
        self._assign(node.func.value, Each(value))  # of any keys
        return REPLICATED if name in ("update", "clear") else value

    def _grow(self, container: cst.BaseExpression, base: Layout, value: Layout) -> None:
        """Put something into a list; one that is begun outside a loop over rows has something of each."""
        binding = self._unit.names.binding(container) if isinstance(container, cst.Name) else None
        now = self._rows_deep, self._choices
        begun = self._begun.get(binding, now) if binding is not None else now
        held = base if isinstance(base, Each) else Each(NEUTRAL)
        rows, chosen = held.rows or begun[0] < now[0], begun[1] < now[1]
        uneven = CHOSEN if rows and chosen else held.uneven
        self._assign(container, Each(join(inner(base), inner(value)), rows, uneven=uneven))
        if binding is not None:
            self._begun[binding] = begun


def _is_one_row(layout: Layout) -> bool:
    """Whether what is drawn is a number, or has a written length, so that it is broadcast over rows."""
    return isinstance(layout, Made) and (not layout.sizes or isinstance(layout.sizes[0], cst.Integer))


def _is_sized_by_batch(method: str, given: Arguments) -> bool:
    """``token.expand(len(x), -1)``: what is the same on all processes gets as many rows as a batch has."""
    shape = transfer(method, tensors.Reshape)
    sizes = (ShardSize, WholeCount)
    sized = any(isinstance(one, sizes) for layout in given.layouts() for one in parts(layout))
    return shape is not None and shape.how in ("expand", "repeat") and sized


def _is_shape(layouts: list[Layout]) -> bool:
    """Whether all arguments of a type of tensors are sizes: ``Tensor(x.size(0), 1)``."""
    if any(isinstance(one, ShardSize) for one in layouts) or len(layouts) > 1:
        return all(isinstance(one, (ShardSize, Replicated)) for one in layouts)
    return bool(layouts) and isinstance(layouts[0], Shape)


def _length(of: Layout, node: cst.CSTNode) -> Layout:
    return on_each_path(of, lambda one: _length_of(one, node), node)


def _length_of(of: Layout, node: cst.CSTNode) -> Layout:
    if isinstance(of, Shard):
        return ShardSize(of.chosen) if of.dim == 0 else REPLICATED
    if isinstance(of, Each) and of.rows and of.distinct:
        return Unclear("how many different values there are is no sum over the rows", node, joint=True)
    if isinstance(of, Each) and of.rows:
        return Partial("sum", host=True)
    return of if isinstance(of, (Unclear, ShardRow)) else REPLICATED
