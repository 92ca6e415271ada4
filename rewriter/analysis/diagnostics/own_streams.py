"""Data sets that read on in a file or a stream, whatever row they are asked for: each process reads its own."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.diagnostics import OwnStream
from ...facts.torch_api import randomness, surroundings
from ...facts.torch_api.loading import row
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name, outside_names
from ..dataflow.values import Function, Klass, State, Unit
from ..syntax.names import Names
from ..syntax.nodes import dotted
from ..syntax.walk import descendants, nodes_in
from ..training.row_code import loaders_of


def own_streams(state: State, unit: Unit, reach: Reach) -> Iterator[Reason]:
    """
    Data sets of a module whose rows do not depend on the index that they are asked for.

    A loader gives each process other indices, and the process that asks for its first row gets what comes first. Where
    the row is drawn by torch, each process draws its own; else it is read from something that goes on by itself.
    """
    for klass in unit.classes.values():
        getter = klass.method("__getitem__")
        if getter is not None and getter.unit is unit and any(True for _ in loaders_of(state, klass)):
            found = own_stream(state, reach, klass, getter)
            yield from () if found is None else [found]


def own_stream(state: State, reach: Reach, klass: Klass, getter: Function) -> Reason | None:
    """What is said of a class whose ``__getitem__`` reads on by itself."""
    index = _unused_index(getter)
    if index is None:
        return None
    unit, name, given = getter.unit, klass.node.name.value, index.name.value
    runs = list(_runs(reach, klass, getter))
    advanced = next((node for node in runs if _goes_on(state, reach, klass, getter, node)), None)
    if advanced is not None:
        return OwnStream(getter.node, name, given, _text(unit, advanced), certain=True)
    calls = [node for node in runs if isinstance(node, cst.Call) and node in state.calls]
    if any(randomness.draws(outside_name(state.calls[call])) is not None for call in calls):
        return None  # of torch: each process draws its own; of others: another finding
    unknown = next((call for call in calls if _is_unknown(state, reach, call)), None)
    return OwnStream(getter.node, name, given, _text(unit, unknown), certain=False) if unknown is not None else None


def _runs(reach: Reach, klass: Klass, getter: Function) -> Iterator[cst.CSTNode]:
    """Every node that runs for a row, methods of the data set included."""
    pending, seen = [getter], {getter}
    while pending:
        function = pending.pop()
        for node in reach.runs(function.node.body, function.unit):
            yield node
            name = dotted(node.func) if isinstance(node, cst.Call) else ""
            method = klass.method(name.removeprefix("self.")) if name.startswith("self.") else None
            if method is not None and method not in seen:
                seen.add(method)
                pending.append(method)


def _unused_index(getter: Function) -> cst.Param | None:
    """The index of a ``__getitem__`` that nothing of its row depends on: it is not read, or only to raise an error."""
    params, names = getter.node.params.params, getter.unit.names
    if len(params) != 2:
        return None
    binding = names.scopes[getter.node].bindings.get(params[1].name.value)
    if binding is None or any(not _only_raises(names, read) for read in binding.reads):
        return None
    return params[1]


def _only_raises(names: Names, read: cst.Name) -> bool:
    """Whether a read decides whether an error is raised, and nothing else."""
    choice = next(names.enclosing(read, cst.If), None)
    if not isinstance(choice, cst.If) or choice.orelse is not None or read not in set(descendants(choice)):
        return False
    lines = [small for line in choice.body.body for small in getattr(line, "body", ())]
    return len(lines) == 1 and isinstance(lines[0], cst.Raise)


def _goes_on(state: State, reach: Reach, klass: Klass, getter: Function, node: cst.CSTNode) -> bool:
    """Whether a node takes the next of something that stays between rows: ``next(self.rows)``, a line of a file that is
    open, ``self.rows[self.at]`` where ``self.at`` is set for each row."""
    unit = reach.unit_of(node, getter.unit)
    if isinstance(node, cst.Call):
        if method_name(node) == "next" and node.args and not isinstance(node.func, cst.Attribute):
            return _stays(unit, node.args[0].value)
        held = node.func.value if isinstance(node.func, cst.Attribute) else None
        return isinstance(held, cst.Attribute) and _is_open(state, klass, held)
    target = node.target if isinstance(node, (cst.AugAssign, cst.AssignTarget)) else None
    if not isinstance(target, cst.Attribute) or not _stays(unit, target):
        return False
    text = dotted(target)
    return any(
        dotted(part) == text
        for subscript in nodes_in(getter.node, cst.Subscript)
        for element in subscript.slice
        for part in nodes_in(element, cst.Attribute)
    )


def _stays(unit: Unit, value: cst.BaseExpression) -> bool:
    """Whether a value outlives the row: an attribute of the data set, a variable of the module."""
    while isinstance(value, (cst.Attribute, cst.Subscript)):
        if isinstance(value, cst.Attribute):
            return dotted(value.value) == "self" or _stays(unit, value.value)
        value = value.value
    binding = unit.names.binding(value) if isinstance(value, cst.Name) else None
    return binding is not None and binding.scope.function.node is unit.names.module


def _is_open(state: State, klass: Klass, held: cst.Attribute) -> bool:
    """Whether an attribute is a file that the class opens."""
    for assign in nodes_in(klass.node, cst.Assign):
        if any(target.target.deep_equals(held) for target in assign.targets):
            record = state.calls.get(assign.value) if isinstance(assign.value, cst.Call) else None
            if record is not None and (surroundings.opens(outside_name(record)) or method_name(record.node) == "open"):
                return True
    return False


def _is_unknown(state: State, reach: Reach, call: cst.Call) -> bool:
    """Whether a call of something that stays between rows may give another value each time."""
    if not isinstance(call.func, cst.Attribute) or reach.called(call):
        return False
    own = isinstance(call.func.value, cst.Attribute) and dotted(call.func.value).startswith("self.")
    return own and not any(row(name) is not None for name in outside_names(state.calls[call]))


def _text(unit: Unit, node: cst.CSTNode) -> str:
    """The first line of what goes on; of a target its whole assignment."""
    whole = unit.names.parents.get(node, node) if isinstance(node, cst.AssignTarget) else node
    return unit.names.module.code_for_node(whole).strip().split("\n")[0]
