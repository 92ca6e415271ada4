"""Functions that a program may call by a computed name: ``getattr(model, args.mode)(...)``, ``globals()[name]()``."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.values import Function, Instance, Klass, State, Unit
from ..analysis.syntax.definitions import bindings_value
from ..analysis.syntax.walk import descendants
from ..facts.spellings import OWN_NAMES


def called_by_computed_names(state: State, reach: Reach) -> set[Code]:
    """The functions of modules, constructors and methods among those. No argument can be added to such a call."""
    found: set[Code] = set()
    for unit in reach.units:
        for call in unit.names.calls:
            if _name(call) == "getattr" and len(call.args) > 1:
                start = _start(call.args[1].value)
                found |= {m for m in _methods(state, call.args[0].value) if start is not None and _begins(m, start)}
            if any(map(_reads_own_names, _callees(unit, call))) or _evaluates_a_call(call):
                found.update(_of_module(state, unit))
    return found


def _callees(unit: Unit, call: cst.Call) -> Iterator[cst.BaseExpression]:
    """What a call calls, as it is written, and as it was assigned."""
    yield call.func
    binding = unit.names.binding(call.func) if isinstance(call.func, cst.Name) else None
    yield from bindings_value(unit.names, binding) if binding is not None else ()


def _reads_own_names(callee: cst.BaseExpression) -> bool:
    """``globals()[name]``, ``eval(name)``."""
    if isinstance(callee, cst.Subscript) and isinstance(callee.value, cst.Call):
        return _name(callee.value) in OWN_NAMES and not callee.value.args
    return isinstance(callee, cst.Call) and _name(callee) == "eval"


def _evaluates_a_call(call: cst.Call) -> bool:
    """``eval(name + "(num_classes)")``."""
    texts = descendants(call.args[0].value) if _name(call) in ("eval", "exec") and call.args else ()
    return any(isinstance(n, (cst.SimpleString, cst.FormattedStringText)) and "(" in n.value for n in texts)


def _of_module(state: State, unit: Unit) -> Iterator[Code]:
    for binding in unit.names.scope.bindings.values():
        for thing in state.binding(binding).things:
            if isinstance(thing, Function):
                yield thing.node
            elif isinstance(thing, Klass) and (init := thing.method("__init__")) is not None:
                yield init.node


def _methods(state: State, node: cst.BaseExpression) -> Iterator[cst.FunctionDef]:
    """The methods of the objects that an expression may be."""
    slot = state.values.get(node)
    for thing in slot.things if slot is not None else ():
        klass = thing.klass if isinstance(thing, Instance) else state.klass.get(thing)
        for each in klass.lineage() if klass is not None else ():
            yield from (s for s in getattr(each.node.body, "body", ()) if isinstance(s, cst.FunctionDef))


def _begins(method: cst.FunctionDef, start: str) -> bool:
    return method.name.value.startswith(start)


def _start(node: cst.BaseExpression) -> str | None:
    """How a computed name begins: ``layer`` of ``f"layer{i}"``; None where it is written out as a whole."""
    if isinstance(node, cst.SimpleString):
        return None
    if isinstance(node, cst.FormattedString):
        first = node.parts[0] if node.parts else None
        return first.value if isinstance(first, cst.FormattedStringText) else ""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "format":
        return _text(node.func.value).partition("{")[0]
    while isinstance(node, cst.BinaryOperation):
        node = node.left
    return _text(node).partition("%")[0]


def _text(node: cst.BaseExpression) -> str:
    return str(node.evaluated_value) if isinstance(node, cst.SimpleString) else ""


def _name(call: cst.Call) -> str:
    return call.func.value if isinstance(call.func, cst.Name) else ""
