"""
What a script makes on the CPU out of its batches: ``torch.tensor(rows.tolist())``, an array, a padded list.

A prepared loader yields its batches on the device, and what tensor functions make of them stays there. What is made
anew does not, however much of a batch is in it: its move is needed as before.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from enum import Enum
from typing import NamedTuple

import libcst as cst

from ...facts.roles import Role
from ...facts.torch_api.kinds import tensors
from ...facts.torch_api.loading import row, transfer
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.solver import Thing
from ..dataflow.values import CallRecord, External, Instance, State, Unit, origins
from ..syntax.definitions import bindings_value, unshadowed
from ..syntax.nodes import keyword
from ..syntax.walk import descendants

_ARRAYS = ("numpy.", "pandas.", "scipy.", "sklearn.", "PIL.", "cv2.", "skimage.")
"""Packages whose functions give what lies in the CPU's memory."""
_THROUGH = frozenset({"list", "tuple", "zip", "enumerate", "map", "reversed", "sorted", "dict", "iter", "next", "sum"})


class _At(NamedTuple):
    """An expression, and the module that contains it."""

    unit: Unit
    node: cst.CSTNode


class _Memory(Enum):
    """What an expression alone says of where its value lies."""

    DEVICE = "device"
    HOST = "host"
    NEW_TENSOR = "new tensor"
    """On the CPU, and a tensor that nobody has moved."""
    DATA = "data"
    """Where a data set keeps its rows."""


class MadeOnHost:
    """Answers of expressions whether what they hold may have been made on the CPU."""

    def __init__(self, state: State, reach: Reach, forwards: Container[cst.CSTNode]) -> None:
        self.state, self.reach, self.forwards = state, reach, forwards
        self._data = _data_of(state)
        self._known: dict[cst.CSTNode, frozenset[_Memory]] = {}
        self._behind: dict[cst.CSTNode, list[_At]] = {}

    def __call__(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether one of the ways by which an expression gets its value makes it on the CPU."""
        return not self._ways(unit, node).isdisjoint((_Memory.HOST, _Memory.NEW_TENSOR))

    def new_tensor(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether one of them makes a tensor there."""
        return _Memory.NEW_TENSOR in self._ways(unit, node)

    def rests(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether one of them takes it from a data set, by no loader."""
        return _Memory.DATA in self._ways(unit, node)

    def always_rests(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether all ways that are known take it from a data set."""
        return self._ways(unit, node) == {_Memory.DATA}

    def moved(self, unit: Unit, node: cst.CSTNode) -> bool:
        """Whether all ways that are known put it on the device."""
        return self._ways(unit, node) == {_Memory.DEVICE}

    def _ways(self, unit: Unit, node: cst.CSTNode) -> frozenset[_Memory]:
        if node not in self._known:
            self._known[node] = frozenset()  # what comes from itself, in an earlier turn of a loop, adds no way
            found: set[_Memory] = set()
            seen: set[cst.CSTNode] = set()
            pending = [_At(unit, node)]
            while pending:
                here = pending.pop()
                if here.node in seen:
                    continue
                seen.add(here.node)
                answer = self._itself(here)
                if answer is not None:
                    found.add(answer)
                else:
                    if here.node not in self._behind:
                        self._behind[here.node] = list(self._sources(here))
                    pending += self._behind[here.node]
            self._known[node] = frozenset(found)
        return self._known[node]

    def _itself(self, here: _At) -> _Memory | None:
        """What an expression says by itself; None where that depends on its parts."""
        if origins(self.state.values.get(here.node), Role.LOADER):
            return _Memory.DEVICE  # what it yields, however its data set was made
        if self._is_data(here.node):
            return _Memory.DATA
        if not isinstance(here.node, cst.Call) or here.node not in self.state.calls:
            return None
        if here.node in self.forwards:
            return _Memory.DEVICE  # a model's output is on the model's device
        record = self.state.calls[here.node]
        outside = outside_name(record)
        if outside.startswith(_ARRAYS):
            return _Memory.HOST
        method = record.receiver is not None and not outside and not self.reach.called(here.node)
        found = row(f"torch.Tensor.{method_name(here.node)}" if method else outside)
        kind = found.transfer if found is not None else None
        if isinstance(kind, tensors.ToHost):
            return _Memory.HOST
        if method:
            moves = isinstance(kind, tensors.Convert) and kind.device == "argument"
            return _Memory.DEVICE if moves and not self._is_host_type(here.node) else None
        return self._made(here, outside, kind) if outside.startswith("torch.") else None

    def _is_data(self, node: cst.CSTNode) -> bool:
        """Whether an expression holds a data set."""
        slot = self.state.values.get(node)
        if slot is None:
            return False
        if origins(slot, Role.DATASET) or not self._data.isdisjoint(slot.things):
            return True
        return any(isinstance(thing, Instance) and thing.klass.role is Role.DATASET for thing in slot.things)

    def _is_host_type(self, call: cst.Call) -> bool:
        """``x.type(torch.FloatTensor)``: a type of the CPU moves nothing that is new, and a batch gets its dtype."""
        held = self.state.values.get(call.args[0].value) if call.args else None
        names = [t.qualified for t in (held.things if held is not None else ()) if isinstance(t, External)]
        kinds = [transfer(name, tensors.Convert) for name in names]
        return bool(kinds) and all(kind is not None and kind.device == "host" for kind in kinds)

    def _made(self, here: _At, outside: str, kind: object) -> _Memory | None:
        """What a function of torch says that makes a tensor."""
        assert isinstance(here.node, cst.Call)
        asked = any(arg.keyword is not None and arg.keyword.value == "device" for arg in here.node.args)
        new = _Memory.DEVICE if asked else _Memory.NEW_TENSOR
        if isinstance(kind, tensors.Convert):
            if kind.device == "host" or asked:
                return new
            values = [arg.value for arg in here.node.args if arg.keyword is None]
            listed = any(isinstance(value, (cst.List, cst.Tuple, cst.BaseNumber, cst.ListComp)) for value in values)
            return new if listed or any(self(here.unit, value) for value in values) else None
        drawn = isinstance(kind, tensors.Random) and outside.startswith("torch.rand") and not outside.endswith("_like")
        return new if drawn or (isinstance(kind, tensors.Create) and kind.like is None) else None

    def _sources(self, here: _At) -> Iterator[_At]:
        """The expressions that a value comes from."""
        unit, node = here
        if isinstance(node, cst.Name):
            yield from self._assigned(unit, node)
        elif isinstance(node, cst.Call):
            yield from self._called(unit, node)
        elif isinstance(node, (cst.Attribute, cst.Subscript)):
            yield _At(unit, node.value)
        elif isinstance(node, (cst.List, cst.Tuple, cst.Set, cst.Dict)):
            yield from (_At(unit, entry.value) for entry in node.elements)
        elif isinstance(node, cst.DictComp):
            yield _At(unit, node.value)
        elif isinstance(node, (cst.ListComp, cst.SetComp, cst.GeneratorExp)):
            yield _At(unit, node.elt)
        elif isinstance(node, (cst.BinaryOperation, cst.BooleanOperation)):
            yield from (_At(unit, side) for side in (node.left, node.right))
        elif isinstance(node, cst.IfExp):
            yield from (_At(unit, side) for side in (node.body, node.orelse))
        elif isinstance(node, cst.UnaryOperation):
            yield _At(unit, node.expression)

    def _assigned(self, unit: Unit, name: cst.Name) -> Iterator[_At]:
        binding = unit.names.binding(name)
        if binding is None:
            return
        definitions = unshadowed(unit.names, binding, name)
        yield from (_At(unit, value) for value in bindings_value(unit.names, binding, definitions))
        for definition in definitions:
            if isinstance(definition, cst.Param):
                yield from (_At(caller, value) for caller, value in self.reach.given(binding))
            loop = next((a for a in unit.names.ancestors(definition) if isinstance(a, (cst.For, cst.CompFor))), None)
            if loop is not None and definition in descendants(loop.target) and not self.state.loaders.get(loop):
                yield _At(unit, loop.iter)

    def _called(self, unit: Unit, call: cst.Call) -> Iterator[_At]:
        record = self.state.calls.get(call)
        if record is None:
            return
        functions = self.reach.called(call)
        for function in functions:
            home = self.reach.unit(function)
            yield from (_At(home, each.value) for each in home.names.returns.get(function, ()) if each.value)
        if not functions:
            yield from self._computed(unit, call, record)

    def _computed(self, unit: Unit, call: cst.Call, record: CallRecord) -> Iterator[_At]:
        """What a call outside of the program computes its value from."""
        outside = outside_name(record)
        if record.receiver is not None and not outside:
            if isinstance(call.func, cst.Attribute):
                yield _At(unit, call.func.value)
        elif outside.startswith(("torch.", "einops.")) or outside.rpartition(".")[2] in _THROUGH:
            yield from (_At(unit, arg.value) for arg in call.args)


def _data_of(state: State) -> frozenset[Thing]:
    """What loaders are given as data sets: lists, tensors, objects of classes outside of the program."""

    def found() -> frozenset[Thing]:
        made = [r for r in state.calls.values() if any(o.node is r.node for o in origins(r.result, Role.LOADER))]
        given = [data for record in made if (data := keyword(record.node, "dataset", 0)) is not None]
        slots = [slot for data in given if (slot := state.values.get(data)) is not None]
        return frozenset(thing for slot in slots for thing in slot.things)

    return state.once(_data_of, found)
