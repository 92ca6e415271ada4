"""The layouts of what models, layers and criteria give."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from ....facts.roles import Origin, Role
from ....facts.torch_api.kinds import training as kinds
from ....facts.torch_api.loading import row, transfer
from ...dataflow.callees import method_name
from ...dataflow.containers import members
from ...dataflow.values import CallRecord, Function, Mapping, origins
from ...syntax.walk import descendants
from ..loss_arguments import built_with
from .arguments import Arguments
from .expressions import MOST
from .functions import Functions
from .layers import batch_dimension, through_module
from .layout import (
    CHOSEN,
    NEUTRAL,
    REPLICATED,
    Each,
    Layout,
    Partial,
    Several,
    Shard,
    Unclear,
    held,
    holds_chosen,
    inner,
    join,
    join_all,
    mapped,
    parts,
    reduces,
    settled,
    varies,
)
from .pointwise import has_rows, meeting, of_fixed_size, paired
from .reductions import losses

_MOST_OF_A_MODEL = 10_000
"""Expressions: of one forward pass."""


class Models(Functions):
    """Follows models."""

    def _rows_for_rows(self, record: CallRecord, given: Arguments) -> Layout:
        """What a model gives for rows: figures of the batch where its code computes some, and rows otherwise."""
        functions = self._run_by(record)
        fed, layer = any(map(holds_chosen, given.layouts())), self._is_layer(record)
        shards = [one for layout in given.layouts() for one in held(layout) if isinstance(one, Shard)]
        if len({one.dim for one in shards if one.spread}) > 1 and layer and self._is_bare(record):
            return paired(record.node)
        rows = [one for one in shards if one.dim]
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
        modules = modules or self._layers_beside(record)
        if moved is not None or any(_gives_loss(one) or _gives_several(one) for one in modules):
            found += [self._module(module, given) for module in modules]
        self._steps = spent
        assumed = Unclear("", record.node) if functions or not layer else None
        given_back = (mapped(one, lambda part: _as_rows_of_model(part, fed, moved, assumed)) for one in found)
        if found:
            return join_all(given_back)
        alone = _as_rows_of_model(NEUTRAL, fed, moved, assumed)
        made = origins(self.state.values.get(record.node.func), Role.MODEL)
        long = layer and any(one.long for one in shards) and bool(made) and not any(map(_pools, made))
        return replace(alone, long=long) if isinstance(alone, Shard) else alone

    def _layers_beside(self, record: CallRecord) -> list[Origin]:
        """The layers and criteria of packages that a call may run, beside a class of the program: by an option."""
        owner = record.receiver if method_name(record.node) == "forward" else self.state.values.get(record.node.func)
        found = origins(owner, Role.MODEL, Role.CRITERION)
        known = [one for one in found if one.qualified and row(one.qualified) is not None]
        return [one for one in known if one not in self.state.klass]

    def _is_layer(self, record: CallRecord) -> bool:
        """Whether what a call runs is of a class of torch's own."""
        modules = origins(self.state.values.get(record.node.func), Role.MODEL)
        return all(module.qualified and row(module.qualified) is not None for module in modules)

    def _is_bare(self, record: CallRecord) -> bool:
        """Whether what a call runs are layers without weights: a distance of what they are given."""
        modules = origins(self.state.values.get(record.node.func), Role.MODEL)
        known = [found.transfer for module in modules if (found := row(module.qualified or "")) is not None]
        return bool(known) and all(isinstance(kind, kinds.ModelClass) and kind.bare for kind in known)

    def _one_number(self, found: Layout, reduced: str) -> Layout:
        """What a loss of rows gives; in the code of a model one number at least, whatever its rows are."""
        mean = reduced in ("mean", "batchmean")
        if self.seeds.models and isinstance(found, Unclear) and not found.joint and (mean or reduced == "sum"):
            return Partial("mean", CHOSEN if found.picked else "") if mean else Partial("sum")
        return found

    def _clash(self, node: cst.Call, given: Arguments, *, alike: bool = False) -> Unclear | None:
        """``torch.cat((x, hidden), dim=1)``, where ``hidden`` is made for so many rows as the whole batch has.
        ``alike``: what is given is compared with one another."""
        first = given.operand()
        alike = alike or isinstance(first, Several)
        return of_fixed_size(first.items if isinstance(first, Several) else given.layouts(), node, alike=alike)

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
            slot = self.state.values.get(value)
            if any(isinstance(thing, Mapping) for thing in (slot.things if slot is not None else ())):
                return self._any_order(made, arg, layout, given)  # `nn.Sequential(OrderedDict(...))`
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
    found = Shard(0, chosen=chosen or holds_chosen(layout), assumed=None if isinstance(layout, Shard) else doubt)
    return replace(found, long=layout.long) if isinstance(layout, Shard) else found


def _gives_loss(module: Origin) -> bool:
    if module.role is Role.CRITERION:
        return True
    kind = transfer(module.qualified, kinds.ModelClass) if module.qualified else None
    return kind is not None and bool(kind.own_loss)


def _pools(module: Origin) -> bool:
    """Whether a layer may bring a whole sequence to one value, ``AdaptiveAvgPool1d(1)``, in others or by itself."""
    if not module.qualified.startswith("torch.nn."):
        return True
    spelled = [node.value for node in descendants(module.node) if isinstance(node, cst.Name)]
    return any(word in name for name in (module.qualified, *spelled) for word in ("Pool", "Bag"))


def _gives_several(module: Origin) -> bool:
    """Whether a layer gives its output and something beside it: ``attention(x, x, x)[0]``."""
    kind = transfer(module.qualified, kinds.ModelClass) if module.qualified else None
    return kind is not None and kind.gives == "output and state"


def _rows_if_unclear(layout: Layout) -> Layout:
    return Shard(0) if isinstance(layout, Unclear) and (has_rows(layout) or not layout.joint) else layout
