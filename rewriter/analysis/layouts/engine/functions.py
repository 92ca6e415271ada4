"""The layouts of what functions of the program give: each is gone through where it is called."""

from __future__ import annotations

from abc import abstractmethod
from types import MappingProxyType

import libcst as cst

from ....facts.roles import Role
from ...dataflow.call_binding import takes
from ...dataflow.constant_values import Given
from ...dataflow.values import CallRecord, Function, Klass, State, Unit, origins
from ...syntax.nodes import FunctionNode, is_none, parameters, positional
from .arguments import Arguments
from .expressions import Expressions
from .layout import (
    NEUTRAL,
    REPLICATED,
    Absent,
    Each,
    Layout,
    Several,
    Unclear,
    inner,
    join_all,
    varies,
)
from .recursion import CalledWith

_NONE: Given = MappingProxyType({})
_DEEPEST = 16


class Functions(Expressions):
    """Follows calls into the program."""

    @abstractmethod
    def _block(self, block: cst.CSTNode) -> bool:
        """Go through a block."""

    def _call(self, function: FunctionNode, record: CallRecord, given: Arguments) -> Layout:
        unit = self.reach.unit(function)
        if not is_method(unit, function) and not _takes(function, record):
            return NEUTRAL  # the call fails: what follows it does not run
        method = is_method(unit, function) and not _through_class(self.state, record)
        thing = unit.function(function)
        known = Function(function, unit) if thing is None else thing
        through = _through_class(self.state, record)
        constants = {} if through else self.constants.handed(function, record, self._frame)
        plain, named = [layout for _, layout in given.plain], {k: v for k, (_, v) in given.named.items()}
        return self._run(known, plain, named, method, constants)

    def _run_by(self, record: CallRecord) -> list[FunctionNode]:
        """The functions that a call runs: of several models by option, those that take what it gives."""
        functions = self.reach.called(record.node)
        if not origins(self.state.values.get(record.node.func), Role.MODEL):
            return functions
        units = [(function, self.reach.unit(function)) for function in functions]
        fit = [one for one, unit in units if takes(one, record.node, bound=is_method(unit, one))]
        return fit or functions

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
        nested = len(self._inside) > _DEEPEST
        deep = nested or self._recursion.is_too_deep(node)
        found = None if deep else self._recursion.settled(handed, lambda: self._gone_through(function, handed, method))
        for binding, layout in around.items():  # what they held in the call around this one
            self._set(binding, layout)
        if found is not None:
            return found
        held = [inner(layout) for layout in (*plain, *named.values())]
        name = f"`{node.name.value}`" if isinstance(node, cst.FunctionDef) else "a function"
        why = f"is called inside more than {_DEEPEST} other calls" if nested else "may call itself"
        reason = f"{name} {why}, so what it gives is not known"
        return Unclear(reason, node) if any(map(varies, held)) else REPLICATED

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
        owner, places = positional(node)[:method], positional(node)[method:]
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
            elif "**" in filled and varies(filled["**"]) and param not in owner:  # nothing is known of its keys
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


def is_method(unit: Unit, function: FunctionNode) -> bool:
    held = isinstance(unit.names.within[function].node, cst.ClassDef) if function in unit.names.within else False
    plain = not unit.function(function).decorated("staticmethod")
    return held and plain and isinstance(function, cst.FunctionDef)


def _takes(function: FunctionNode, record: CallRecord) -> bool:
    """Whether a plain function takes the arguments of a call, as far as can be seen; what is handed a function to call
    gives it others: ``optimizer.step(closure)``."""
    plain = isinstance(function, cst.FunctionDef) and not function.decorators
    called = any(isinstance(thing, Function) and thing.node is function for thing in record.callees)
    return not plain or not called or takes(function, record.node)


def _through_class(state: State, record: CallRecord) -> bool:
    """``Model.forward(model, x)``: the object is among the arguments."""
    owner = record.node.func.value if isinstance(record.node.func, cst.Attribute) else None
    slot = state.values.get(owner) if isinstance(owner, cst.Name) else None
    return slot is not None and any(isinstance(thing, Klass) for thing in slot.things)
