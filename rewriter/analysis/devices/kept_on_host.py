"""
What a step uses that stays on the CPU: tensors that are made before the loop, or that the constructors of objects make
or are given, unmoved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.roles import TENSORS, Origin, Role
from ...facts.torch_api import questions, tensor_parts
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.constant_values import constants_of
from ..dataflow.solver import Thing
from ..dataflow.values import Klass, State, Unit, origins
from ..syntax.definitions import bindings_value
from ..syntax.walk import children, descendants
from ..training.training import Training, whole
from .made_on_host import MadeOnHost
from .moves import stateless

_MOVED = frozenset({"to", "cuda", "type_as", "item", "tolist", "numpy", "cpu"})
"""After these methods it does not matter where a tensor was."""


class Kept(NamedTuple):
    """A tensor that is kept on the CPU: where it comes to be kept, and how the script calls it."""

    unit: Unit
    node: cst.CSTNode
    name: str


def kept_on_host(state: State, reach: Reach, training: Training) -> Iterator[Kept]:
    """
    The tensors of the CPU that variables and objects keep, and that meet the batches of a loop: those in attributes,
    and the weights of losses. What is registered in a model that is prepared moves with it.
    """
    keepers = _Keepers(state, reach, training)
    for loop in (*training.train_loops, *training.eval_loops):
        for node in reach.runs_in(loop):
            if isinstance(node, cst.Attribute):
                yield from keepers.in_attribute(node)
            elif isinstance(node, cst.Name):
                yield from keepers.in_variable(node, loop)
            elif isinstance(node, cst.Call):
                yield from keepers.in_loss(node)


class _Keepers:
    """Asks what is kept on the CPU in one program."""

    def __init__(self, state: State, reach: Reach, training: Training) -> None:
        self._state, self._reach, self._training = state, reach, training
        self._made = MadeOnHost(state, reach, training.forwards)

    def in_loss(self, call: cst.Call) -> Iterator[Kept]:
        """The losses of torch that a call calls, where they keep a weight, and are no part of a prepared model."""
        record = self._state.calls.get(call)
        for loss in record.callees if record is not None else ():
            if isinstance(loss, Origin) and loss.role is Role.CRITERION and isinstance(loss.node, cst.Call):
                made = self._state.calls.get(loss.node)
                known = made is not None and outside_name(made).startswith("torch.nn.")
                if made is not None and known and not stateless(loss) and not self._is_prepared(loss):
                    if any(self._may_hold(made.unit, arg.value) for arg in loss.node.args):
                        text = made.unit.names.one_line(loss.node)
                        yield Kept(made.unit, loss.node, f"the weights of `{text}`")

    def in_attribute(self, node: cst.Attribute) -> Iterator[Kept]:
        """The assignments of an attribute of an object that give it a tensor of the CPU, where it meets a batch."""
        held = self._state.values.get(node.value)
        unit = next((u for u in self._reach.units if node in u.names.parents), None)
        if held is None or unit is None or not self._meets(unit, node):
            return
        for thing in held.things:
            klass = self._state.class_of(thing)
            if klass is not None:
                prepared, written = self._is_prepared(thing), _is_written(unit, node)
                yield from self._assigned(klass, node.attr.value, prepared=prepared, written=written)

    def in_variable(self, name: cst.Name, loop: cst.CSTNode) -> Iterator[Kept]:
        """What a variable is given before a loop that gives it a tensor of the CPU, where it meets a batch."""
        unit = next((u for u in self._reach.units if name in u.names.parents), None)
        binding = unit.names.binding(name) if unit is not None else None
        if unit is None or binding is None or isinstance(unit.names.parents.get(name), cst.Subscript):
            return  # a table that is looked up takes a single place from any device
        if not self._meets(unit, name):
            return
        before = [d for d in binding.definitions if all(above is not loop for above in unit.names.ancestors(d))]
        for value in bindings_value(unit.names, binding, before):
            if self._is_kept(unit, value, written=_is_written(unit, name)):
                yield Kept(unit, value, f"`{name.value}`")

    def _is_prepared(self, thing: Thing) -> bool:
        return isinstance(thing, Origin) and whole(self._state, thing) in self._training.models

    def _assigned(self, klass: Klass, name: str, *, prepared: bool, written: bool) -> Iterator[Kept]:
        """What an object's class, and its bases, give an attribute; a model moves what is registered."""
        for node in descendants(klass.node.body):
            value: cst.BaseExpression | None = None
            if isinstance(node, cst.Assign) and any(_is_own(target.target, name) for target in node.targets):
                value = node.value
            elif isinstance(node, cst.Call) and method_name(node) == "register_buffer" and not prepared:
                value = node.args[1].value if len(node.args) > 1 and _is_text(node.args[0].value, name) else None
            if value is not None and self._is_kept(klass.unit, value, written=written):
                yield Kept(klass.unit, node, f"`self.{name}`")
        for base in klass.bases:
            yield from self._assigned(base, name, prepared=prepared, written=written)

    def _may_hold(self, unit: Unit, value: cst.BaseExpression) -> bool:
        """Whether an argument of a loss may be a tensor: it is not known to be None, or another constant."""
        return constants_of(self._state).of(unit, value) is None

    def _is_kept(self, unit: Unit, value: cst.BaseExpression, *, written: bool) -> bool:
        """Whether a value is a tensor that is made on the CPU: no layer or parameter, which its module moves, and no
        single number, which may meet a tensor of any device. A number takes nothing from another device, though, where
        a batch is ``written`` into it."""
        if origins(self._state.values.get(value), Role.MODEL, Role.CRITERION):
            return False
        made = self._state.calls.get(value) if isinstance(value, cst.Call) else None
        name = outside_name(made) if made is not None else ""
        if isinstance(value, cst.Call) and (questions.is_parameter(name) or (_is_number(name, value) and not written)):
            return False
        return self._made.new_tensor(unit, value)

    def _meets(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether a value goes as it is into an operation on a batch, or on what was computed from one."""
        here: cst.CSTNode = node
        for around in unit.names.ancestors(node):
            word = around.attr.value if isinstance(around, cst.Attribute) else ""
            if word in _MOVED or tensor_parts.asks_how(word):
                return False
            if isinstance(around, cst.Call) and self._reach.called(around):
                return False  # the function decides, not the call
            if any(self._is_placed(unit, part) for part in _beside(around, here)):
                return True
            if isinstance(around, (cst.BaseStatement, cst.BaseSmallStatement, cst.Lambda)):
                return False
            here = around
        return False

    def _is_placed(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether an operand is on the device: made from what a loader yields, and not taken to the CPU."""
        value = node.value if isinstance(node, (cst.Arg, cst.Index)) else node
        return bool(origins(self._state.values.get(value), *TENSORS)) and not self._made(unit, value)


def _beside(around: cst.CSTNode, here: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """The operands of an operation beside one of them."""
    if isinstance(around, cst.BinaryOperation):
        return [side for side in (around.left, around.right) if side is not here]
    if isinstance(around, cst.Comparison):
        return [part for part in (around.left, *(c.comparator for c in around.comparisons)) if part is not here]
    if isinstance(around, cst.Call):
        receiver = [around.func.value] if isinstance(around.func, cst.Attribute) and here is not around.func else []
        return [part for part in (*receiver, *around.args) if part is not here]
    if isinstance(around, cst.Subscript):
        return [index for element in around.slice for index in children(element) if here is around.value]
    if isinstance(around, cst.AugAssign):
        return [around.value] if here is around.target else []
    return []


def _is_written(unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a tensor is changed in place: ``total += loss``, ``total.add_(loss)``."""
    around = unit.names.parents.get(node)
    if isinstance(around, cst.AugAssign):
        return around.target is node
    return (
        isinstance(around, cst.Attribute) and around.attr.value.endswith("_") and not around.attr.value.endswith("__")
    )


def _is_own(target: cst.BaseExpression, name: str) -> bool:
    """``self.name``."""
    if not isinstance(target, cst.Attribute) or target.attr.value != name:
        return False
    return isinstance(target.value, cst.Name) and target.value.value == "self"


def _is_text(node: cst.BaseExpression, text: str) -> bool:
    return isinstance(node, cst.SimpleString) and node.evaluated_value == text


def _is_number(name: str, call: cst.Call) -> bool:
    """``torch.tensor(0.5)``."""
    return name in ("torch.tensor", "torch.as_tensor") and bool(call.args) and isinstance(
        call.args[0].value, (cst.BaseNumber, cst.UnaryOperation)
    )  # fmt: skip
