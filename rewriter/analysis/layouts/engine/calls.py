"""The layouts of what calls give: functions of the program, layers, operations of the tables, containers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

import libcst as cst

from ....facts.roles import Origin, Role
from ....facts.torch_api import questions
from ....facts.torch_api.kinds import outside, tensors
from ....facts.torch_api.kinds import training as kinds
from ....facts.torch_api.loading import row, transfer
from ...dataflow.callees import made_names, method_name, outside_names
from ...dataflow.constant_values import Given
from ...dataflow.containers import members
from ...dataflow.records import record_fields
from ...dataflow.values import CallRecord, External, Function, Klass, State, Unit, origins
from ...syntax.nodes import FunctionNode, dotted, is_none, parameters, positional
from ..loss_arguments import asked_reduction, built_with
from .expressions import MOST, Expressions
from .layers import batch_dimension, through_module
from .layout import (
    CHOSEN,
    NEUTRAL,
    REPLICATED,
    Absent,
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
    across_rows,
    as_rows,
    held,
    holds_chosen,
    inner,
    join,
    join_all,
    mapped,
    on_each_path,
    parts,
    reduces,
    settled,
    varies,
)
from .narrowing import only_tensor
from .operations import Arguments, applied, collected, elements, losses, made
from .pointwise import has_rows, meeting, of_fixed_size
from .recursion import CalledWith

_NONE: Given = MappingProxyType({})
_DEEPEST = 16
_CONTAINERS = (list, tuple, dict)
_MOST_OF_A_MODEL = 10_000
"""Expressions: of one forward pass."""
_BUILTINS = frozenset(
    "len zip enumerate range sum list tuple set frozenset reversed isinstance print type hasattr id str repr".split()
) | {"map", "filter"}
_SETS = frozenset({"set", "frozenset"})
_ASKS = frozenset("isinstance print type hasattr id str repr".split())
_GROWS = frozenset("append extend insert add appendleft".split())
_TAKES = frozenset("items values keys get pop copy popleft setdefault".split())


class Calls(Expressions):
    """Follows calls."""

    @abstractmethod
    def _block(self, block: cst.CSTNode) -> bool:
        """Go through a block."""

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
        functions = self.reach.called(node)
        if functions:
            return join_all(self._call(function, record, given) for function in functions)
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

    def _rows_for_rows(self, record: CallRecord, given: Arguments) -> Layout:
        """What a model gives for rows: figures of the batch where its code computes some, and rows otherwise."""
        functions = self.reach.called(record.node)
        fed, layer = any(map(holds_chosen, given.layouts())), self._is_layer(record)
        rows = [one for layout in given.layouts() for one in held(layout) if isinstance(one, Shard) and one.dim]
        reason = f"a model is given rows along dimension {rows[0].dim}" if rows else ""
        moved = Unclear(reason, record.node, elsewhere=True) if rows else None
        if not functions and self._inside and not layer:
            rows_of_it = Shard(0, chosen=fed, assumed=Unclear("", record.node))
            return moved or Each(rows_of_it)  # of a model that others have made, one tensor or several
        given.plain = [(node, mapped(layout, _rows_if_unclear)) for node, layout in given.plain]
        given.named = {name: (node, mapped(layout, _rows_if_unclear)) for name, (node, layout) in given.named.items()}
        spent = self._steps
        self._steps = max(spent, MOST - _MOST_OF_A_MODEL)  # a model that is too large to follow hides nothing else
        found = [self._call(function, record, given) for function in functions]
        modules = origins(self.state.values.get(record.node.func), Role.MODEL) if layer else []
        if moved is not None or any(map(_has_own_loss, modules)):
            found += [self._module(module, given) for module in modules]
        self._steps = spent
        assumed = Unclear("", record.node) if functions or not layer else None
        given_back = (mapped(one, lambda part: _as_rows_of_model(part, fed, moved, assumed)) for one in found)
        return join_all(given_back) if found else _as_rows_of_model(NEUTRAL, fed, moved, assumed)

    def _is_layer(self, record: CallRecord) -> bool:
        """Whether what a call runs is of a class of torch's own."""
        modules = origins(self.state.values.get(record.node.func), Role.MODEL)
        return all(module.qualified and row(module.qualified) is not None for module in modules)

    def _one_number(self, found: Layout, reduced: str) -> Layout:
        """What a loss of rows gives; in the code of a model one number at least, whatever its rows are."""
        mean = reduced in ("mean", "batchmean")
        if self.seeds.models and isinstance(found, Unclear) and not found.joint and (mean or reduced == "sum"):
            return Partial("mean" if mean else "sum")
        return found

    def _given(self, node: cst.Call) -> Arguments:
        unit, frame = self._unit, self._frame
        given = Arguments(node, lambda name, position: self.constants.argument(unit, node, name, position, frame))
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
        tensor = base is not None and varies(base)
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
        names = [method] if tensor else [*outside_names(record), *made_names(record), f"builtins.{name}"]
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
            return REPLICATED if known else self._foreign(REPLICATED)
        unknown = next((one for one in held if isinstance(one, Unclear)), None)
        if unknown is not None:
            return unknown
        of_several = any(isinstance(layout, Each) and layout.rows for layout in given.layouts())
        if all(isinstance(one, (ShardRow, Replicated)) for one in held) and not of_several:
            return ShardRow()
        if all(isinstance(one, (ShardSize, Replicated)) for one in held):
            return held[0] if name in ("int", "float", "max", "min") else REPLICATED
        text = dotted(node.func) or name
        return Unclear(f"what `{text}` does with the rows of the batch is not known", node)

    def _drawn(self, layout: Layout) -> Layout:
        """Random numbers that a turn draws: rows of its own for each process, as many as a batch has or another number;
        in a batch that is cut, perhaps as many as the whole of it."""
        rows = self.seeds.models and self._is_of_turn() and isinstance(layout, Made) and len(layout.sizes) > 1
        return Shard(0, len(layout.sizes)) if rows and isinstance(layout, Made) else self._foreign(layout)

    def _clash(self, node: cst.Call, given: Arguments, *, alike: bool = False) -> Unclear | None:
        """``torch.cat((x, hidden), dim=1)``, where ``hidden`` is made for so many rows as the whole batch has.
        ``alike``: what is given is compared with one another."""
        first = given.operand()
        alike = alike or isinstance(first, Several)
        return of_fixed_size(first.items if isinstance(first, Several) else given.layouts(), node, alike=alike)

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
            return found if isinstance(found, (Partial, Replicated, Unclear, Shard)) else Unclear("a sum", given.node)
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
        if name in _GROWS and (held or isinstance(base, Replicated)) and given.plain:
            value = given.plain[-1][1]
            if varies(value) or held:
                self._grow(node.func.value, base, value)
            return REPLICATED
        if name in _TAKES and held:
            return (
                Each(Several((REPLICATED, inner(base))))
                if name == "items"
                else (inner(base) if name in ("get", "pop", "popleft", "setdefault") else base)
            )
        return None

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

    def _module(self, module: Origin, given: Arguments) -> Layout:
        found = row(module.qualified) if module.qualified else None
        kind = found.transfer if found is not None else None
        if (met := meeting([one for layout in given.layouts() for one in parts(layout)], given.node)) is not None:
            return met
        if module.role is Role.CRITERION:
            held = given.layouts()
            if not any(varies(layout) for layout in held):
                return REPLICATED
            if self.seeds.cut and (clash := self._clash(given.node, given, alike=True)) is not None:
                return clash
            classes = isinstance(kind, kinds.Criterion) and kind.classes
            asked = built_with(self.state, module, kind) if isinstance(kind, kinds.Criterion) else ""
            return self._one_number(losses(held, asked, classes, given.node), asked)
        if module.qualified == "torch.nn.Sequential" and isinstance(module.node, cst.Call):
            return self._in_turn(module.node, given)
        if not isinstance(kind, kinds.ModelClass):
            held = [inner(layout) for layout in given.layouts()]
            bad = next((one for one in held if isinstance(one, Unclear)), None)
            if not any(varies(layout) for layout in held):
                return REPLICATED
            return bad or Unclear("what this model does with the rows of the batch is not known", given.node)
        batch = batch_dimension(self.state, module, kind) if kind.rows == "sequence" else None
        return through_module(kind, module.qualified, module.node, batch, given)

    def _in_turn(self, made: cst.Call, given: Arguments) -> Layout:
        """The layers of ``nn.Sequential``, one after another."""
        if made in self._followed:  # ``self.net = nn.Sequential(self.net, pool)``
            held = given.layouts()
            return Unclear("a model that has itself among its layers", made) if any(map(varies, held)) else REPLICATED
        self._followed.append(made)
        found = self._through_layers(made, given)
        self._followed.pop()
        return found

    def _through_layers(self, made: cst.Call, given: Arguments) -> Layout:
        layout = settled(given.operand(), given.node)
        layers: list[list[Origin]] = []
        for arg in made.args:
            value = arg.value
            inside = [e.value for e in value.elements] if isinstance(value, (cst.List, cst.Tuple)) else [value]
            if arg.star and not isinstance(value, (cst.List, cst.Tuple)):
                return self._any_order(made, arg, layout, given)
            layers.extend(origins(self.state.values.get(one), Role.MODEL) for one in inside)
        for layer in layers:
            if not layer:
                return Unclear("a layer of nn.Sequential is not known", made) if varies(layout) else layout
            layout = join_all(self._layer(one, layout, given.node) for one in layer)
        return layout

    def _any_order(self, made: cst.Call, arg: cst.Arg, layout: Layout, given: Arguments) -> Layout:
        """Layers that were collected in a list: each may come at any place."""
        slot = self.state.values.get(arg.value)
        found = members(self.state, slot) if slot is not None else None
        self.state.solver.run()
        layers = origins(found, Role.MODEL)
        if not layers:
            return Unclear("the layers of nn.Sequential are not known", made) if varies(layout) else layout
        for layer in layers:
            layout = join(layout, self._layer(layer, layout, given.node))
        return layout

    def _layer(self, layer: Origin, layout: Layout, node: cst.Call) -> Layout:
        forward = self._forward(layer)
        handed = Arguments(node, plain=[(cst.Name("x"), layout)])
        if forward is not None:
            return self._run(forward, [layout], {}, method=True)
        return self._module(layer, handed)

    def _forward(self, layer: Origin) -> Function | None:
        klass = self.state.klass.get(layer)
        return klass.method("forward") if klass is not None else None

    def _call(self, function: FunctionNode, record: CallRecord, given: Arguments) -> Layout:
        unit = self.reach.unit(function)
        method = is_method(unit, function) and not _through_class(self.state, record)
        thing = unit.function(function)
        known = Function(function, unit) if thing is None else thing
        through = _through_class(self.state, record)
        constants = {} if through else self.constants.handed(function, record, self._frame)
        plain, named = [layout for _, layout in given.plain], {k: v for k, (_, v) in given.named.items()}
        return self._run(known, plain, named, method, constants)

    def _run(
        self, function: Function, plain: list[Layout], named: dict[str, Layout], method: bool, constants: Given = _NONE
    ) -> Layout:
        node = function.node
        handed = CalledWith(node, tuple(plain), named, constants)
        known = self._recursion.again(handed)
        if known is not None:
            return known
        bindings = function.unit.names.scopes[node].bindings.values() if node in self._inside else ()
        around = {binding: self.values.get(binding) for binding in bindings}
        deep = self._recursion.is_too_deep(node) or len(self._inside) > _DEEPEST
        found = None if deep else self._recursion.settled(handed, lambda: self._gone_through(function, handed, method))
        for binding, layout in around.items():  # what they held in the call around this one
            self._set(binding, layout)
        if found is not None:
            return found
        held = [inner(layout) for layout in (*plain, *named.values())]
        return Unclear("a function that calls itself", node) if any(map(varies, held)) else REPLICATED

    def _return(self, value: cst.BaseExpression | None) -> None:
        """Note what a function returns; what depends on what it returns itself says nothing yet."""
        waited = self._recursion.unanswered
        layout = self._eval(value) if value is not None else NEUTRAL
        if self._recursion.unanswered == waited:
            self._returned[-1].append(layout)

    def _gone_through(self, function: Function, handed: CalledWith, method: bool) -> Layout | None:
        """What a function gives, gone through once; None where all that it returns waits for calls of itself."""
        node, unit, plain, named = function.node, function.unit, handed.plain, handed.named
        waited = self._recursion.unanswered
        scope = unit.names.scopes[node]
        for binding in scope.bindings.values():
            self._set(binding, None)
        places = positional(node)[1 if method else 0 :]
        self._units.append(unit)
        self._frames.append(handed.constants)
        self._inside.append(node)
        self._returned.append([])
        self._yielded.append([])
        filled = dict(named)
        filled.update({p.name.value: layout for p, layout in zip(places, plain, strict=False)})
        for param in parameters(node):
            binding = scope.bindings[param.name.value]
            if param is node.params.star_arg:
                self._set(binding, Several(tuple(plain[len(places) :])))
            elif param is node.params.star_kwarg:
                rest = [
                    layout for name, layout in named.items() if name not in {p.name.value for p in parameters(node)}
                ]
                self._set(binding, Each(join_all(map(inner, rest))))
            elif param.name.value in filled:
                self._set(binding, filled[param.name.value])
            elif "**" in filled and varies(filled["**"]):  # of which keys it has, nothing is known
                self._set(binding, filled["**"])
            else:
                none = param.default is not None and is_none(param.default)
                default = self._eval(param.default) if param.default is not None else REPLICATED
                self._set(binding, Absent(neutral=True) if none else default)
        if isinstance(node, cst.Lambda):
            self._return(node.body)
        else:
            self._block(node.body)
        given, yielded = self._returned.pop(), self._yielded.pop()
        self._inside.pop()
        self._frames.pop()
        self._units.pop()
        if yielded:
            return Each(join_all(yielded))
        if given or self._recursion.unanswered == waited:
            return join_all(given)
        return None


def _as_rows_of_model(layout: Layout, chosen: bool, moved: Unclear | None, assumed: Unclear | None) -> Layout:
    """
    What a model gives for rows, by what its code says.

    Args:
        layout: by its code.
        chosen: it is given some of the batch's rows, chosen by what is in them.
        moved: it is given rows in another dimension than the first, and where that of the result is, its code decides.
        assumed: rows are what is taken for granted where its code does not say, and what calls it.
    """
    if reduces(layout) or (isinstance(layout, Shard) and (layout.dim or moved is not None)):
        return layout
    if moved is not None:
        return replace(layout, elsewhere=True) if isinstance(layout, Unclear) else moved
    doubt = layout if assumed is not None and isinstance(layout, Unclear) else assumed
    return Shard(0, chosen=chosen or holds_chosen(layout), assumed=None if isinstance(layout, Shard) else doubt)


def _has_own_loss(module: Origin) -> bool:
    kind = transfer(module.qualified, kinds.ModelClass) if module.qualified else None
    return kind is not None and bool(kind.own_loss)


def _rows_if_unclear(layout: Layout) -> Layout:
    return Shard(0) if isinstance(layout, Unclear) and (has_rows(layout) or not layout.joint) else layout


def _is_one_row(layout: Layout) -> bool:
    """Whether what is drawn is a number, or has a written length, so that it is broadcast over rows."""
    return isinstance(layout, Made) and (not layout.sizes or isinstance(layout.sizes[0], cst.Integer))


def _is_shape(layouts: list[Layout]) -> bool:
    """Whether all arguments of a type of tensors are sizes: ``Tensor(x.size(0), 1)``."""
    if any(isinstance(one, ShardSize) for one in layouts) or len(layouts) > 1:
        return all(isinstance(one, (ShardSize, Replicated)) for one in layouts)
    return bool(layouts) and isinstance(layouts[0], Shape)


def _length(of: Layout, node: cst.CSTNode) -> Layout:
    return on_each_path(of, lambda one: _length_of(one, node), node)


def _length_of(of: Layout, node: cst.CSTNode) -> Layout:
    if isinstance(of, Shard):
        return ShardSize() if of.dim == 0 else REPLICATED
    if isinstance(of, Each) and of.rows and of.distinct:
        return Unclear("how many different values there are is no sum over the rows", node, joint=True)
    if isinstance(of, Each) and of.rows:
        return Partial("sum", host=True)
    return of if isinstance(of, (Unclear, ShardRow)) else REPLICATED


def is_method(unit: Unit, function: FunctionNode) -> bool:
    held = isinstance(unit.names.within[function].node, cst.ClassDef) if function in unit.names.within else False
    plain = not unit.function(function).decorated("staticmethod")
    return held and plain and isinstance(function, cst.FunctionDef)


def _through_class(state: State, record: CallRecord) -> bool:
    """``Model.forward(model, x)``: the object is among the arguments."""
    owner = record.node.func.value if isinstance(record.node.func, cst.Attribute) else None
    slot = state.values.get(owner) if isinstance(owner, cst.Name) else None
    return slot is not None and any(isinstance(thing, Klass) for thing in slot.things)
