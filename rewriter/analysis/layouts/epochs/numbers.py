"""Numbers that each process computes from its rows, joined one by one where no rows can be."""

from __future__ import annotations

import libcst as cst

from ....facts.module import Form, Gather
from ....facts.torch_api import questions
from ...dataflow.callees import method_name, outside_name
from ...dataflow.modules import torch_name
from ...syntax.definitions import bindings_value, unshadowed
from ...syntax.scopes import Binding
from ...syntax.walk import descendants, nodes_in
from ..engine.layout import (
    CHOSEN,
    Partial,
    ShardSize,
    is_figure,
    varies,
)
from ..epoch_totals import Total
from .plan import EpochPlan
from .step import EXPRESSIONS, EpochStep


class Numbers:
    """The numbers that the step of a training loop adds to its totals."""

    def __init__(self, step: EpochStep, *, anywhere: bool) -> None:
        self._anywhere = anywhere
        """Tensors on the host can be reduced."""
        self.step, self.state, self.unit, self.reach = step, step.state, step.unit, step.reach
        self.inside, self.layouts = step.inside, step.layouts

    def meets(self, value: cst.BaseExpression, plan: EpochPlan) -> bool:
        """Whether a value would be computed from joined rows and from this process's own."""
        return self.reads_joined(value, plan) and not isinstance(self.layouts.value(value), ShardSize)

    def reads_joined(self, value: cst.BaseExpression, plan: EpochPlan) -> bool:
        """Whether a value reads what the gather of the loop has joined by then, or counts that in place of
        another."""
        gather = plan.gather
        if gather is None or self.unit.names.order(value) < self.unit.names.order(gather.node):
            return False
        counts = {name for name, _ in gather.counts}
        names = list(nodes_in(value, cst.Name))
        return any(name in counts or name.value in gather.set_anew for name in names)

    def by_numbers(self, total: Total, plan: EpochPlan) -> list[Gather] | None:
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
        if any(isinstance(a, cst.For) and a in self.inside and self.step.decides(a.iter) for a in loops):
            return None
        found: list[Gather] = []
        for value in total.value:
            if self.reads_joined(value, plan):
                continue
            tensors = self.step.tensors_in(Total(total.node, [value], total.place))
            if not tensors and (losses or not self.step.is_number(value)):
                below = set(descendants(value))
                found += [gather for gather in losses if gather.node in below]
                continue
            number = self._number(value)
            if number is None:
                return None
            found.append(number)
        return found

    def rates(self, total: Total) -> list[Gather] | None:
        """The reductions of sums over the rows that each process divides by those of its own batch, as one number that
        is the mean of its rows: ``loss.item() / len(x)``. None of any other total."""
        if not self.step.is_rated(total):
            return None
        found = [self._number(value) for value in total.value]
        means = [number for number in found if number is not None and number.reduction == "mean"]
        return means if len(means) == len(found) else None

    def _number(self, value: cst.BaseExpression) -> Gather | None:
        """The reduction of one number that the rows of the batch were reduced to."""
        layout = self.layouts.value(value)
        if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and method_name(value) == "item":
            tensor = self.layouts.value(value.func.value)
            value, layout = (value.func.value, tensor) if is_figure(tensor) else (value, layout)
        if isinstance(layout, Partial) and layout.host is True and layout.uneven == CHOSEN:
            return None  # a mean of as many entries as this process has chosen
        op = "sum" if isinstance(layout, ShardSize) else layout.op if isinstance(layout, Partial) else ""
        on_host = isinstance(layout, ShardSize) or (isinstance(layout, Partial) and layout.host is True)
        number = on_host and not (self._anywhere and self._is_tensor(value))
        torch = torch_name(self.state, self.unit) if number else None
        if not op or (number and torch is None) or not (on_host or is_figure(layout)):
            return None
        if op != "mean" and self._is_scaled(value):
            return None
        text = self.unit.names.module.code_for_node(value)
        plain = number or isinstance(value, EXPRESSIONS) or value.lpar
        because = "{} is collected over the epoch, and each process computes it from its shard of the data"
        of = text if plain else f"({text})"
        real = bool(number) and self._is_real(value)
        return Gather(value, (of,), because, Form.REDUCE, reduction=op, number=torch or "", real=real)

    def _is_tensor(self, value: cst.BaseExpression) -> bool:
        """Whether a figure is a tensor on the host: ``torch.mean(torch.tensor(losses))``."""
        record = self.state.calls.get(value) if isinstance(value, cst.Call) else None
        if not isinstance(value, cst.Call) or record is None or method_name(value) in questions.leaves_device():
            return False
        if outside_name(record).startswith("torch."):
            return True
        return isinstance(value.func, cst.Attribute) and self._is_tensor(value.func.value)

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
