"""What is written where in a program: what variables, objects and attributes are given, loops and methods among it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import libcst as cst

from ...facts.container_methods import takes_out
from ...facts.roles import Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.command_lines import option
from ..dataflow.values import External, Instance, Unit, origins
from ..syntax.definitions import attribute_assignments
from ..syntax.nodes import FunctionNode, changed_in_place, positional
from ..syntax.scopes import ScopeKind
from ..syntax.walk import descendants
from ..training.step_counts import bars

_WRITING = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.For, cst.CompFor, cst.Call)
"""The kinds of node by which something is written."""
TENSOR_PARTS = frozenset({"data", "grad"})
"""Attributes by which a tensor itself is read, or changed."""
_HANDED_ON = (
    *(cst.Arg, cst.Assign, cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.NamedExpr, cst.Del),
    *(cst.For, cst.CompFor, cst.Element, cst.DictElement, cst.Return, cst.Yield),
)
"""Where a part of an object is set, or becomes another name's."""
_STRIPPED = frozenset("tqdm trange track progress auto list iter islice reversed tqdm_notebook".split())


@dataclass(frozen=True)
class Part:
    """One of the values that a call gives: ``loss`` of ``loss, accuracy = evaluate(model)``."""

    call: cst.Call
    place: int


Key = Hashable
"""A variable, an object of the program, or an attribute of the objects of a class."""


class WrittenValue(NamedTuple):
    """One place at which a key is given something."""

    unit: Unit
    value: cst.CSTNode | Part
    definition: cst.CSTNode | None = None
    """The name that it defines."""
    loop: cst.CSTNode | None = None
    """The loop over a loader that gives it, a batch or a part of one."""

    @property
    def node(self) -> cst.CSTNode:
        """The code of what is given."""
        return self.value.call if isinstance(self.value, Part) else self.value


class Writes:
    """Answers for one program, whatever is prepared in it."""

    def __init__(self, reach: Reach) -> None:
        self.state, self.reach = reach.state, reach
        self._writes: dict[Key, list[WrittenValue]] = {}
        self._shrunk: dict[Key, list[tuple[Unit, cst.Call]]] = {}
        self._changing: dict[FunctionNode, bool] = {}
        """Whether methods change their objects."""
        for unit in reach.units:
            self._index(unit)

    def of(self, key: Key) -> Sequence[WrittenValue]:
        """What a key is given, in the order of the modules."""
        return self._writes.get(key, ())

    def shrunk(self, key: Key) -> Sequence[tuple[Unit, cst.Call]]:
        """What takes elements out of a list."""
        return self._shrunk.get(key, ())

    def _index(self, unit: Unit) -> None:
        for node in unit.names.every(*_WRITING):
            if isinstance(node, cst.Assign):
                for target in node.targets:
                    self._written(unit, target.target, node.value)
            elif isinstance(node, (cst.AnnAssign, cst.AugAssign, cst.NamedExpr)) and node.value is not None:
                self._written(unit, node.target, node.value)
            elif isinstance(node, (cst.For, cst.CompFor)):
                self._iterated(unit, node, node.target, node.iter)
            elif isinstance(node, cst.Call):
                self._called_on(unit, node)

    def _note(self, key: Key | None, write: WrittenValue) -> None:
        if key is not None:
            self._writes.setdefault(key, []).append(write)

    def _written(
        self, unit: Unit, target: cst.CSTNode, value: cst.CSTNode | Part, loop: cst.CSTNode | None = None
    ) -> None:
        if isinstance(target, (cst.Tuple, cst.List)):
            starred = any(isinstance(element, cst.StarredElement) for element in target.elements)
            for index, element in enumerate(target.elements):
                part: cst.CSTNode | Part = value
                if isinstance(value, (cst.Tuple, cst.List)) and len(value.elements) == len(target.elements):
                    part = value.elements[index].value
                elif isinstance(value, cst.Call) and not starred:
                    part = Part(value, index)
                elif isinstance(value, Part):
                    part = value.call
                self._written(unit, element.value, part, loop)
        else:
            name = target if isinstance(target, cst.Name) else None
            self._note(self._target(unit, target), WrittenValue(unit, value, name, loop))

    def _target(self, unit: Unit, target: cst.CSTNode) -> Key | None:
        while field_of(unit, target) is None and (of := _whole_of(target)) is not None:
            target = of
        if isinstance(target, cst.Name):
            return unit.names.binding(target)
        if isinstance(target, cst.Attribute):
            return field_of(unit, target) or (None, target.attr.value)
        return None

    def _iterated(self, unit: Unit, loop: cst.CSTNode, target: cst.CSTNode, source: cst.BaseExpression) -> None:
        name = method_name(source) if isinstance(source, cst.Call) else ""
        args = [a.value for a in source.args if a.keyword is None] if isinstance(source, cst.Call) else []
        elements = [e.value for e in target.elements] if isinstance(target, (cst.Tuple, cst.List)) else []
        if name == "enumerate" and args and len(elements) == 2:
            self._iterated(unit, loop, elements[1], args[0])
        elif name == "zip" and len(args) == len(elements):
            for element, arg in zip(elements, args, strict=True):
                self._iterated(unit, loop, element, arg)
        elif name in _STRIPPED and args:
            self._iterated(unit, loop, target, args[0])
        else:
            drawn = bool(origins(self.state.values.get(source), Role.LOADER))
            self._written(unit, target, source, loop if drawn else None)

    def _called_on(self, unit: Unit, call: cst.Call) -> None:
        """What a method is given stays in its object: in a list, a meter. So does what the object is called with."""
        func = call.func
        if (kept := option(call)) is not None:  # each option has its own attribute of what is read
            for arg in call.args:
                self._note((None, kept), WrittenValue(unit, arg.value))
            return
        if isinstance(func, cst.Attribute) and takes_out(func.attr.value):
            target = self._target(unit, func.value)
            if target is not None:
                self._shrunk.setdefault(target, []).append((unit, call))
        if not call.args or call not in self.state.calls:
            return
        if not isinstance(func, cst.Attribute) or any(f.name.value == "__call__" for f in self._methods(call)):
            held = self.state.values.get(func)
            called = [t for t in held.things if isinstance(t, Instance)] if held is not None else []
            for thing in called if any(self._sets_itself(method) for method in self._methods(call)) else ():
                for arg in call.args:
                    self._note(thing, WrittenValue(unit, arg.value))
            return
        if any(bars(unit, func.value)):  # a bar shows it, and gives nothing back
            return
        things = self.state.values.get(func.value)
        instances = [t for t in things.things if isinstance(t, Instance)] if things is not None else []
        for thing in instances if self._keeps(call) else ():
            if not (isinstance(func.value, cst.Name) and func.value.value == "self"):
                for arg in call.args:
                    self._note(thing, WrittenValue(unit, arg.value))
        roles = origins(things)
        outside = things is not None and any(isinstance(t, External) for t in things.things)  # torch.save(state, path)
        alone = isinstance(unit.names.parents.get(call), cst.Expr) or changed_in_place(call) is not None
        if not instances and not roles and not outside and alone:
            for arg in call.args:
                self._note(self._target(unit, func.value), WrittenValue(unit, arg.value))

    def _methods(self, call: cst.Call) -> Iterator[cst.FunctionDef]:
        yield from (function for function in self.reach.called(call) if isinstance(function, cst.FunctionDef))

    def _sets_itself(self, method: cst.FunctionDef) -> bool:
        """Whether a method, or another one that it calls, sets an attribute of its object, or fills one."""
        return self.state.once((_sets_itself, method), lambda: _sets_itself(self.reach, method))

    def _keeps(self, call: cst.Call) -> bool:
        """Whether a method may keep what it is given: one that only computes something from it does not, as models and
        losses do, nor does a function of a module, as it is not given the object."""
        if origins(self.state.values.get(call.func), Role.MODEL, Role.CRITERION):
            return any(map(self._sets_itself, self._methods(call)))
        functions = self.reach.called(call)
        owning = (f for f in functions if self.reach.unit(f).names.within[f].kind is not ScopeKind.MODULE)
        return any(map(self._writes_itself, owning)) if functions else bool(call.args)

    def _writes_itself(self, function: FunctionNode) -> bool:
        """Whether a method changes its object, or hands it to code that may: it does more than read attributes."""
        if function not in self._changing:
            self._changing[function] = False  # one that calls itself
            unit, own = self.reach.unit(function), positional(function)[:1]
            held = [unit.names.scopes[function].bindings[param.name.value] for param in own]
            reads = [read for binding in held for read in binding.reads]
            self._changing[function] = any(self._changes(unit, read) for read in reads)
        return self._changing[function]

    def _changes(self, unit: Unit, read: cst.Name) -> bool:
        """Whether what is done with an object is more than to read from it, or to call a method that reads."""
        parents = unit.names.parents
        part: cst.CSTNode = read
        while isinstance(above := parents.get(part), (cst.Attribute, cst.Subscript)) and above.value is part:
            part = above
        call = parents.get(part)
        if isinstance(call, cst.Call) and call.func is part:
            return self._keeps(call)
        return part is read or (isinstance(call, _HANDED_ON) and not _is_number(unit, part, call))


def _is_number(unit: Unit, part: cst.CSTNode, handed: cst.CSTNode) -> bool:
    """Whether what is handed to a call is an attribute that is a number as it is written: nobody changes that."""
    made = attribute_assignments(unit.names, part) if isinstance(part, cst.Attribute) else []
    numbers = bool(made) and all(isinstance(assign.value, (cst.Integer, cst.Float)) for assign in made)
    return isinstance(handed, cst.Arg) and numbers


def _whole_of(target: cst.CSTNode) -> cst.CSTNode | None:
    """That of which something is a part, or what a method that changes it gives: ``self.size.data.mul_(0.9)``."""
    if isinstance(target, cst.Subscript):
        return target.value
    if isinstance(target, cst.Attribute) and target.attr.value in TENSOR_PARTS:
        return target.value
    return changed_in_place(target)


def writes_of(reach: Reach) -> Writes:
    """What is written where in a program: one answer for all that ask."""
    return reach.state.once(Writes, lambda: Writes(reach))


def field_of(unit: Unit, node: cst.CSTNode) -> Key | None:
    """For ``self.name`` in a method: the attribute of that class."""
    if not isinstance(node, cst.Attribute):
        return None
    base = node.value
    if not isinstance(base, cst.Name) or base.value != "self":
        return None
    klass = next((a for a in unit.names.ancestors(node) if isinstance(a, cst.ClassDef)), None)
    return (klass, node.attr.value) if klass is not None else None


def _sets_itself(reach: Reach, method: cst.FunctionDef) -> bool:
    for code in reach.below(method):
        for node in reach.own(code):
            targets: list[cst.CSTNode] = [t.target for t in node.targets] if isinstance(node, cst.Assign) else []
            targets += [node.target] if isinstance(node, (cst.AugAssign, cst.AnnAssign)) else []
            filled = node.value if isinstance(node, cst.Expr) else None
            if isinstance(filled, cst.Call) and not reach.called(filled):
                targets += [filled.func.value] if isinstance(filled.func, cst.Attribute) else []
            parts = [part for target in targets for part in descendants(target)]
            if any(isinstance(p, cst.Attribute) and getattr(p.value, "value", "") == "self" for p in parts):
                return True
    return False
