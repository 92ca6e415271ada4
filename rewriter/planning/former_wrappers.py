"""What is left of wrappers around models once these are gone: choices between two things that are one now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.values import State, Unit
from ..analysis.devices.availability import asks_availability, only_value
from ..analysis.syntax.walk import descendants, nodes_in
from ..editing.edits import applied_model
from ..facts.module import OwnName
from ..facts.placement import Move, Placement


def with_announcements(state: State, unit: Unit, wrappers: Iterable[Placement]) -> Iterator[Placement]:
    """The wrappers; where the question for the GPUs around one does nothing else but tell of it, all of it goes:
    ``print("Let's use", torch.cuda.device_count(), "GPUs!")``."""
    for wrapper in wrappers:
        block = unit.names.parents.get(wrapper.statement) if wrapper.statement is not None else None
        guard = unit.names.parents.get(block) if block is not None else None
        if isinstance(guard, cst.If) and guard.body is block and not isinstance(unit.names.parents[guard], cst.If):
            other = guard.orelse.body.body if isinstance(guard.orelse, cst.Else) else ()
            lines = [line for line in (*guard.body.body, *other) if line is not wrapper.statement]
            ends = guard.orelse is None or isinstance(guard.orelse, cst.Else)
            if ends and lines and all(map(_tells, lines)) and _asks_for_gpus(state, unit, guard.test):
                wrapper = wrapper._replace(statement=guard)
        yield wrapper


def _asks_for_gpus(state: State, unit: Unit, test: cst.BaseExpression) -> bool:
    """Whether a condition asks torch what GPUs there are: ``n_gpu > 1``, for ``n_gpu = torch.cuda.device_count()``."""
    bindings = (unit.names.binding(name) for name in nodes_in(test, cst.Name))
    values = (only_value(unit, binding) for binding in bindings if binding is not None)
    return any(value is not None and asks_availability(state, value) for value in (test, *values))


def _tells(line: cst.CSTNode) -> bool:
    """Whether a line prints or logs, and does nothing else."""
    small = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None
    call = small.value if isinstance(small, cst.Expr) else None
    return isinstance(call, cst.Call) and method_name(call) in ("print", "info", "debug", "warning")


def unwrapped_branches(unit: Unit, wrappers: Iterable[Placement]) -> Iterator[cst.If]:
    """The conditions that only choose between wrapping a model and what makes it ready without a wrapper."""
    for wrapper in wrappers:
        choice = next(unit.names.enclosing(wrapper.node, cst.If), None)
        if not isinstance(choice, cst.If) or not isinstance(choice.orelse, cst.Else):
            continue
        if wrapper.move is Move.CALL:
            plain = choice.body.deep_replace(wrapper.node, applied_model(wrapper.node))
            if choice.orelse.body.deep_equals(plain) and not isinstance(unit.names.parents[choice], cst.If):
                yield choice
            continue
        alone = [*getattr(choice.body, "body", ())] == [wrapper.statement]
        parts = list(descendants(choice.orelse))
        works = any(isinstance(n, (cst.Assign, cst.AugAssign)) for n in parts)
        refuses = any(isinstance(n, cst.Raise) for n in parts)
        if alone and works and not refuses and not isinstance(unit.names.parents[choice], cst.If):
            yield choice


def same_branches(unit: Unit, inner: Iterable[cst.Attribute]) -> Iterator[cst.If]:
    """The conditions that choose between the model inside a wrapper and the same without one, for the same work."""
    every = list(inner)
    inside, asked = set(every), (next(unit.names.enclosing(node, cst.If), None) for node in every)
    for choice in dict.fromkeys(asked):
        if not isinstance(choice, cst.If) or not isinstance(choice.orelse, cst.Else):
            continue
        calls = [node for node in descendants(choice.test) if isinstance(node, cst.Call)]
        if any(method_name(call) not in ("isinstance", "hasattr") for call in calls):
            continue
        one, other = (_plain(body, inside) for body in (choice.body, choice.orelse.body))
        if one.deep_equals(other) and not isinstance(unit.names.parents[choice], cst.If):
            yield choice


def _plain(body: cst.CSTNode, inside: set[cst.Attribute]) -> cst.CSTNode:
    """A block with the model in place of what is inside its wrapper."""
    for node in [node for node in descendants(body) if node in inside]:
        plain = body.deep_replace(node, node.value) if isinstance(node, cst.Attribute) else body
        assert isinstance(plain, cst.CSTNode)
        body = plain
    return body


def idle_choices(unit: Unit, inner: Iterable[cst.Attribute]) -> Iterator[tuple[cst.IfExp, bool]]:
    """The choices between the model inside a wrapper and the same without one."""
    for node in inner:
        choice = unit.names.parents.get(node)
        if isinstance(choice, cst.IfExp) and choice.test is not node:
            first = choice.body is node
            other = choice.orelse if first else choice.body
            if other.deep_equals(node.value):
                yield choice, first


def own_names(unit: Unit, inner: Iterable[cst.Attribute]) -> Iterator[OwnName]:
    """The statements that only set a variable to the model inside its wrapper: ``model = model.module``."""
    choices = {choice.body if first else choice.orelse: choice for choice, first in idle_choices(unit, inner)}
    for node in inner:
        choice = choices.get(node)
        assign = unit.names.parents.get(choice or node)
        line = unit.names.parents.get(assign) if isinstance(assign, cst.Assign) else None
        if isinstance(assign, cst.Assign) and isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
            if len(assign.targets) == 1 and assign.targets[0].target.deep_equals(node.value):
                yield OwnName(line, node, choice)
