"""The losses among what the steps of a training loop collect."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ....facts.module import Gather
from ....facts.roles import Role
from ....facts.torch_api import tensor_parts
from ...dataflow.call_graph import Reach
from ...dataflow.values import State, Unit, origins
from ...syntax.definitions import bindings_value, unshadowed
from ...training.training import Training
from ..engine.layout import (
    Partial,
    is_container,
    is_figure,
)
from ..loop_layouts import LoopLayouts
from ..loop_step import entry, is_loss_entry
from ..loss_reductions import reduction_of
from ..losses import assigned, is_loss_name, is_tensor, read_off, reduced
from ..made_whole import is_joint_step


class Losses:
    """What of a training loop's step is a loss, and how it is joined."""

    def __init__(
        self, state: State, unit: Unit, reach: Reach, training: Training, inside: set[cst.CSTNode], layouts: LoopLayouts
    ) -> None:
        self.state, self.unit, self.reach, self.training = state, unit, reach, training
        self.inside, self.layouts = inside, layouts

    def behind(self, name: cst.Name) -> list[cst.Name]:
        """The losses of this step that a name holds, or a number that was read from them."""
        return self.read_off(name) or ([name] if self.is_loss(name) else [])

    def is_loss(self, name: cst.Name) -> bool:
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

    def reduction(self, name: cst.Name) -> str:
        """How a loss is joined."""
        layout = self.layouts.value(name) if self._is_of_forward(name) else None
        return layout.op if isinstance(layout, Partial) else reduction_of(self.state, self.unit, name)

    def read_off(self, name: cst.Name) -> list[cst.Name]:
        """The losses from which a number was read in this step: ``value = loss.item()``."""
        binding = self.unit.names.binding(name)
        seen = unshadowed(self.unit.names, binding, name) if binding is not None else ()
        if not all(d in self.inside for d in seen):
            return []
        values = [value for d in seen if (value := assigned(self.unit, d)) is not None]
        found = [loss for v in values if (loss := read_off(v)) is not None and self.is_loss(loss)]
        return found if len(found) == len(seen) else []

    def is_joint(self, name: cst.Name) -> bool:
        """Whether a name holds what a prepared optimizer returns of its closure: the loss of all processes."""
        binding = self.unit.names.binding(name)
        seen = unshadowed(self.unit.names, binding, name) if binding is not None else ()
        calls = [value for d in seen if isinstance(value := assigned(self.unit, d), cst.Call)]
        steps = [call for call in calls if call in self.state.calls and is_joint_step(self.state.calls[call])]
        return bool(steps) and len(steps) == len(seen)

    def loss_entry(self, name: cst.Name) -> cst.Attribute | cst.Subscript | None:
        """``outputs.loss`` of what the model gave."""
        part = entry(self.unit, name)
        given = origins(self.state.values.get(name), Role.OUTPUT)
        single = part is not None and given and is_loss_entry(part, self.layouts.value(part))
        return part if single else None

    def returned(self, value: cst.BaseExpression, because: str) -> Iterator[Gather]:
        """The losses whose numbers a function of the program gives to this loop and to no other code."""
        for name in self.made_by_functions(value):
            yield reduced(name, reduction_of(self.state, self.unit, name), because)

    def made_by_functions(self, value: cst.BaseExpression) -> list[cst.Name]:
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
            names.extend(self.made_by_functions(given) if figure is None else [figure])
        sites = [site for function in functions for site in self.reach.sites(function)]
        alone = bool(returns) and len(names) == len(returns) and all(self._trains_at(site) for site in sites)
        return names if alone and all(self.is_loss(name) for name in names) else []

    def _trains_at(self, site: cst.Call) -> bool:
        """Whether a call is in a training loop, or in a function that only training loops call."""
        loops = self.reach.batch_loops(site, self.state.calls[site].unit)
        return bool(loops) and all(loop in self.training.train_loops for loop in loops)

    def shape_only(self, name: cst.Name) -> bool:
        parent = self.unit.names.parents.get(name)
        return isinstance(parent, cst.Attribute) and tensor_parts.asks_how(parent.attr.value)
