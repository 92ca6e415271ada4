"""Functions that a program may call by a computed name: ``getattr(model, args.mode)(...)``, ``globals()[name]()``."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Code, Reach
from ..analysis.dataflow.spoken_names import named_methods
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
                found.update(_asked_for(state, unit, call))
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


def _asked_for(state: State, unit: Unit, call: cst.Call) -> Iterator[cst.FunctionDef]:
    """The methods that a computed name may be, of the objects that a ``getattr`` is given; none where the name is
    written out as a whole."""
    held, name = state.values.get(call.args[0].value), call.args[1].value
    for thing in held.things if held is not None and not isinstance(name, cst.SimpleString) else ():
        klass = thing.klass if isinstance(thing, Instance) else state.klass.get(thing)
        words = set(named_methods(state, unit, name, klass)) if klass is not None else set()
        for each in klass.lineage() if klass is not None else ():
            methods = (s for s in getattr(each.node.body, "body", ()) if isinstance(s, cst.FunctionDef))
            yield from (method for method in methods if method.name.value in words)


def _name(call: cst.Call) -> str:
    return call.func.value if isinstance(call.func, cst.Name) else ""
