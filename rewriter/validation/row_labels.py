"""What an expression is computed from: rows of one process, parameters of its function, fields of its object."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import libcst as cst

from ..analysis.dataflow.call_binding import argument_for
from ..analysis.dataflow.call_graph import Code
from ..analysis.dataflow.callees import method_name, outside_names
from ..analysis.dataflow.values import CallRecord, Instance, Unit, origins
from ..analysis.layouts.epoch_quotients import is_shape
from ..analysis.syntax.definitions import unshadowed
from ..analysis.syntax.nodes import entry_key, is_zero, keyword, parameters, positional
from ..analysis.syntax.walk import children, descendants
from ..analysis.training.draws import drawn
from ..facts.roles import Origin, Role
from ..facts.torch_api import process_calls, questions, tensor_parts
from .program import EmittedProgram


class Field(NamedTuple):
    """An attribute of the object whose method reads it."""

    klass: cst.CSTNode
    name: str


class RowsOf(Enum):
    """What one process reads its rows for."""

    TRAINING = "training"
    EVALUATION = "evaluation"


Label = RowsOf | cst.Param | Field
Labels = frozenset[Label]
"""What a value is computed from: own rows, a parameter of its function, a field of its object."""
ROWS: Labels = frozenset(RowsOf)
NONE: Labels = frozenset()


class RowLabels:
    """What expressions are computed from, by what is known of variables, attributes and functions so far."""

    def __init__(self, program: EmittedProgram) -> None:
        self._program, self._state, self._reach = program, program.state, program.reach
        self._joining = process_calls.joining_names()
        self._evaluations = set(program.training.eval_loops) - set(program.training.train_loops)
        self._defined: dict[cst.CSTNode, Labels] = {}
        """What the definitions of variables hold, with what is put into their objects later."""
        self._entries: dict[cst.CSTNode, dict[str, Labels]] = {}
        """What is put into the entries of such an object, by their keys: ``history["loss"].append(...)``."""
        self._fields: dict[tuple[object, str], Labels] = {}
        """What the attributes of an object hold."""
        self._returned: dict[tuple[Code, int | None], Labels] = {}
        """What a function returns: as a whole, and each of the values that it returns as a tuple."""
        self._widths: dict[Code, int | None] = {}
        self._stored: dict[Code, dict[str, Labels]] = {}
        """What a method stores in the attributes of its object."""
        self._given: dict[cst.Param, Labels] = {}
        """What the calls of a function give to its parameters."""
        self._seen: dict[cst.Name, tuple[cst.CSTNode, ...]] = {}
        """The definitions that each read can see."""
        self._changed = False
        self._counts = False
        """Numbers of rows are added up: the number of one batch by itself is no figure."""

    def _reads(self, unit: Unit, loop: cst.For | cst.CompFor) -> bool:
        """Whether a loop goes through a prepared loader itself, and does not only draw from one in its body."""
        values = self._state.values
        named = any(origins(values.get(node), Role.LOADER) for node in descendants(loop.iter))
        return named and any(self._is_shared(unit, loop, loader) for loader in self._state.loaders.get(loop, {}))

    def _is_shared(self, unit: Unit, reading: cst.CSTNode, loader: Origin) -> bool:
        """Whether a loader gives this process rows of its own where something reads it: it is prepared by then."""
        return loader in self._program.prepared and not self._program.is_whole_at(unit, reading, loader)

    def _labels(self, unit: Unit, node: cst.CSTNode) -> Labels:
        if isinstance(node, cst.Name):
            return self._variable(unit, node)
        if isinstance(node, cst.Attribute):
            return self._attribute(unit, node)
        if isinstance(node, cst.Call):
            return self._result(unit, node)
        if (
            isinstance(node, cst.Subscript)
            and isinstance(node.value, cst.Attribute)
            and node.value.attr.value == "shape"
        ):
            counted = self._counts and _is_first(node.slice[0].slice)
            return self._labels(unit, node.value.value) if counted else NONE
        if isinstance(node, (cst.Lambda, cst.SimpleString, cst.Integer, cst.Float)):
            return NONE
        if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name) and (key := entry_key(node)):
            return self._variable(unit, node.value, key)
        if isinstance(node, cst.Comparison) and any(
            isinstance(part.operator, (cst.Is, cst.IsNot)) for part in node.comparisons
        ):
            return NONE
        return self._all(unit, children(node))

    def _all(self, unit: Unit, nodes: Iterable[cst.CSTNode]) -> Labels:
        found = NONE
        for node in nodes:
            found |= self._labels(unit, node)
        return found

    def _variable(self, unit: Unit, name: cst.Name, entry: str = "") -> Labels:
        """What a variable holds; ``entry``: one of its entries alone."""
        found = NONE
        for definition in self._definitions(unit, name):
            found |= self._defined.get(definition, NONE)
            for key, labels in self._entries.get(definition, {}).items():
                found |= labels if entry in ("", key) else NONE
            parent = unit.names.parents.get(definition)
            for param in (definition, parent):
                if isinstance(param, cst.Param) and param.name.value not in ("self", "cls"):
                    found |= {param}
        return found

    def _definitions(self, unit: Unit, name: cst.Name) -> tuple[cst.CSTNode, ...]:
        """The definitions of a variable that one of its reads can see."""
        if name not in self._seen:
            binding = unit.names.binding(name)
            seen = unshadowed(unit.names, binding, name) or tuple(binding.definitions) if binding is not None else ()
            self._seen[name] = seen
        return self._seen[name]

    def _attribute(self, unit: Unit, node: cst.Attribute) -> Labels:
        word = node.attr.value
        if tensor_parts.asks_how(word) and not tensor_parts.counts(word):
            return NONE  # a whole shape is looked at, and not counted with
        slot = self._state.values.get(node.value)
        things = list(slot.things) if slot is not None else []
        if isinstance(node.value, cst.Name) and node.value.value == "self":
            klass = next((a for a in unit.names.ancestors(node) if isinstance(a, cst.ClassDef)), None)
            read: Labels = frozenset({Field(klass, word)}) if klass is not None else NONE
            return read | self._property(things, word)
        if is_shape(node) and not self._counts and not any(isinstance(thing, Instance) for thing in things):
            return NONE
        found = self._labels(unit, node.value)
        for thing in things:
            found |= self._fields.get((thing, word), NONE)
        return found | self._property(things, word)

    def _property(self, things: Iterable[object], word: str) -> Labels:
        found = NONE
        for thing in things:
            method = thing.klass.method(word) if isinstance(thing, Instance) else None
            if method is not None and method.decorated("property", "cached_property"):
                found |= self._of_object(self._returned.get((method.node, None), NONE), [thing])
        return found

    def _of_object(self, labels: Labels, things: Iterable[object]) -> Labels:
        """What a method gives, for the objects that it is called on."""
        found: set[Label] = {label for label in labels if not isinstance(label, Field)}
        for label in labels:
            if isinstance(label, Field):
                for thing in things:
                    found |= self._fields.get((thing, label.name), NONE)
        return frozenset(found)

    def _result(self, unit: Unit, call: cst.Call, place: int | None = None) -> Labels:
        """What a call gives; ``place``: one of the values of a tuple."""
        name = method_name(call)
        asks = questions.asks_shape(f"builtins.{name}") or questions.asks_type(f"torch.{name}")
        if asks or name == "keys" or self._joins(call):  # what figures are called by says nothing of the rows
            return NONE
        if name == "size" and not (self._counts and call.args and is_zero(call.args[0].value)):
            return NONE
        if name == "len" and not self._counts:
            return NONE
        record = self._state.calls.get(call)
        functions = [f for f in self._reach.called(call) if isinstance(f, cst.FunctionDef)]
        if functions and record is not None:
            if any(isinstance(thing, Instance) for thing in record.result.things) and method_name(call) != "__call__":
                functions = [f for f in functions if f.name.value != "__init__"]
            found = NONE
            for function in functions:
                found |= self._put_in(unit, call, function, self._returned.get((function, place), NONE))
            return found
        if origins(self._state.values.get(call), Role.LOADER, Role.MODEL):
            return NONE
        found = self._of_arguments(unit, call)
        if self._draws(unit, call) or call in self._program.cuts or self._is_noise(unit, call):
            found |= {RowsOf.TRAINING}
        if isinstance(call.func, cst.Attribute):
            found |= self._labels(unit, call.func.value)
        elif not isinstance(call.func, cst.Name):
            found |= self._labels(unit, call.func)
        return found

    def _draws(self, unit: Unit, call: cst.Call) -> bool:
        """Whether a call gives the next batch of a prepared loader."""
        if method_name(call) != "next":
            return False
        drawn = origins(self._state.values.get(call), Role.BATCH)
        return any(batch.source is not None and self._is_shared(unit, call, batch.source) for batch in drawn)

    def _is_noise(self, unit: Unit, call: cst.Call) -> bool:
        """Whether a call in a training loop draws from torch's generator, which is another on each process: noise that
        goes with this process's rows; not of a forward pass that an evaluation runs as well."""
        record = self._state.calls.get(call)
        random = drawn(record) if record is not None else None
        if (
            random is None
            or (random.generator, random.draws) != ("torch", "noise")
            or keyword(call, "generator") is not None
        ):
            return False
        loops = list(self._reach.batch_loops(call, unit))
        if not all(loop in self._program.training.train_loops for loop in loops):
            return False
        return any(isinstance(loop, cst.For) and self._reads(unit, loop) for loop in loops)

    def _of_arguments(self, unit: Unit, call: cst.Call) -> Labels:
        return self._all(unit, (arg.value for arg in call.args))

    def _put_in(self, unit: Unit, call: cst.Call, function: cst.FunctionDef, labels: Labels) -> Labels:
        """The summary of a function, with the arguments of a call in the place of its parameters."""
        if not labels:
            return NONE
        record = self._state.calls[call]
        home = self._reach.unit(function)
        mine = set(parameters(function))
        things = list(record.receiver.things) if record.receiver is not None else []
        found = self._of_object(labels, things) - mine
        for param in labels & mine:
            assert isinstance(param, cst.Param)
            values = given_to(home, function, param, record)
            found |= self._all(unit, values)
            if not values and any(arg.star for arg in call.args):
                found |= self._of_arguments(unit, call)
        return found

    def _joins(self, call: cst.Call) -> bool:
        record = self._state.calls.get(call)
        if record is None or method_name(call) not in self._joining:
            return False
        names = outside_names(record)
        return bool(origins(record.receiver, Role.ACCELERATOR)) or any(process_calls.collective(name) for name in names)


def given_to(home: Unit, function: cst.FunctionDef, param: cst.Param, record: CallRecord) -> list[cst.BaseExpression]:
    """What a call gives to a parameter: to ``*more`` all that is left, to ``**more`` all other keywords."""
    value = argument_for(home, function, param, record)
    if value is not None:
        return [value]
    params, args = function.params, record.node.args
    named = {each.name.value for each in parameters(function)}
    if param is params.star_kwarg:
        return [arg.value for arg in args if arg.star == "**" or (arg.keyword and arg.keyword.value not in named)]
    if param is not params.star_arg:
        return []
    taken = [argument_for(home, function, each, record) for each in positional(function)]
    return [arg.value for arg in args if arg.keyword is None and arg.star != "**" and arg.value not in taken]


def _is_first(index: cst.BaseSlice) -> bool:
    """Whether ``shape[...]`` is asked for the number of rows, or may be."""
    return not isinstance(index, cst.Index) or is_zero(index.value) or not isinstance(
        index.value, (cst.Integer, cst.UnaryOperation)
    )  # fmt: skip
