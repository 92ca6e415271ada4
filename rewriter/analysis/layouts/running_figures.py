"""Figures that a training loop collects and prints as it goes: each process has those of its own rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.effects import Effect, EffectKind
from ...facts.module import Count, Gather
from ...facts.roles import SHARES, TENSORS, Role
from ..dataflow.containers import collects
from ..dataflow.values import State, Unit, origins
from ..syntax.definitions import bindings_value
from ..syntax.scopes import Binding
from ..syntax.walk import descendants
from ..training.training import Training, method_name

_LISTS = frozenset(("append",))
_FIGURES = frozenset({"mean", "sum"})
_ON_BARS = frozenset({"set_postfix", "set_postfix_str", "set_description", "set_description_str"})
_TEXTS = (cst.SimpleString, cst.FormattedString)


def running_figures(
    state: State, unit: Unit, training: Training, effects: Iterable[Effect], gathers: Iterable[Gather]
) -> Iterator[Count]:
    """Those that only the loop reads: nothing makes them whole, since nothing but a log line depends on them."""
    gathered = list(gathers)
    whole = {node for gather in gathered for node in (gather.node, *gather.inline)}
    shown = list(_shown(unit, effects))
    for loop in training.train_loops:
        told: set[str] = set()
        for node in descendants(loop) if loop in unit.names.parents else ():
            name, added = _collected(state, node)
            if name is None or added is None or name.value in told or not whole.isdisjoint(descendants(node)):
                continue
            binding = unit.names.binding(name)
            read = binding is not None and any(unit.names.binding(other) is binding for other in shown)
            body = loop.body if isinstance(loop, (cst.For, cst.While)) else None
            anew = binding is not None and any(unit.names.block(d) is body for d in _set(unit, binding))
            if read and not anew and origins(state.values.get(added), *SHARES):
                told.add(name.value)
                yield Count(node, "running", name.value)
        here = set(descendants(loop))
        joined = {text for gather in gathered if gather.node in here for text in (*gather.names, *gather.means)}
        own = [name for name in shown if name not in whole and not _is_joined(unit, name, joined)]
        yield from _of_steps(state, unit, loop, own, told)
        yield from _left_behind(state, unit, loop, own, told)


def _is_joined(unit: Unit, name: cst.Name, joined: set[str]) -> bool:
    """Whether a figure is made of what the loop gathers, in some steps."""
    pending, seen = [name], set[Binding]()
    while pending:
        read = pending.pop()
        if read.value in joined:
            return True
        binding = unit.names.binding(read)
        if binding is not None and binding not in seen:
            seen.add(binding)
            values = bindings_value(unit.names, binding)
            pending += [n for value in values for n in descendants(value) if isinstance(n, cst.Name)]
    return False


def _of_steps(
    state: State, unit: Unit, loop: cst.CSTNode, shown: Iterable[cst.Name], told: set[str]
) -> Iterator[Count]:
    """What the loop prints of the batch in hand: a loss, an accuracy."""
    inside = set(descendants(loop)) - {n for part in _collectors(loop) for n in descendants(part)}
    for name in shown:
        if name not in inside or name.value in told:
            continue
        if origins(state.values.get(name), Role.LOSS, Role.LOCAL) or _is_figure(state, unit, name):
            told.add(name.value)
            yield Count(name, "figure", name.value)


def _is_figure(state: State, unit: Unit, name: cst.Name) -> bool:
    """Whether a variable holds a mean or a sum over the rows of a batch: ``accuracy = (guess == y).float().mean()``."""
    binding = unit.names.binding(name)
    for value in bindings_value(unit.names, binding) if binding is not None else ():
        calls = [n for n in descendants(value) if isinstance(n, cst.Call) and method_name(n) in _FIGURES]
        parts = (part for call in calls for part in descendants(call) if isinstance(part, cst.Name))
        if any(origins(state.values.get(part), *TENSORS) for part in parts):
            return True
    return False


def _left_behind(
    state: State, unit: Unit, loop: cst.CSTNode, shown: Iterable[cst.Name], told: set[str]
) -> Iterator[Count]:
    """What is printed after the loop of its last batches: the last loss, a moving average of the losses."""
    inside = set(descendants(loop))
    for name in shown:
        binding = unit.names.binding(name) if name not in inside and name.value not in told else None
        after = binding is not None and unit.names.order(name) > unit.names.end(loop)
        own = binding is not None and any(d in inside for d in _set(unit, binding))
        if after and own and origins(state.values.get(name), Role.LOSS, Role.LOCAL):
            told.add(name.value)
            yield Count(name, "figure", name.value)


def _set(unit: Unit, binding: Binding) -> Iterator[cst.CSTNode]:
    """Where a variable is given a value of its own."""
    return (d for d in binding.definitions if not isinstance(unit.names.parents.get(d), cst.AugAssign))


def _shown(unit: Unit, effects: Iterable[Effect]) -> Iterator[cst.Name]:
    """The names in what is printed, and in the texts that are made for it."""
    printed = [e.node for e in effects if e.kind is EffectKind.PRINT and e.node in unit.names.parents]
    printed += [call for call in unit.names.calls if method_name(call) in _ON_BARS]
    for node in printed:
        for name in (n for n in descendants(unit.names.parents[node]) if isinstance(n, cst.Name)):
            yield name
            binding = unit.names.binding(name)
            for value in bindings_value(unit.names, binding) if binding is not None else ():
                parts = list(descendants(value))
                if any(isinstance(part, _TEXTS) for part in parts):
                    yield from (n for n in parts if isinstance(n, cst.Name))


def _collected(state: State, node: cst.CSTNode) -> tuple[cst.Name | None, cst.BaseExpression | None]:
    """What `total += loss.item()` and `scores.append(score)` collect, and in what."""
    holder: cst.CSTNode | None = None
    added: cst.BaseExpression | None = None
    if isinstance(node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign):
        holder, added = node.target, node.value
    elif isinstance(node, cst.Call) and len(node.args) == 1 and collects(state, node, _LISTS):
        holder, added = getattr(node.func, "value", None), node.args[0].value
    return holder if isinstance(holder, cst.Name) else None, added


def _collectors(loop: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The statements of a loop that add something up: their sums are named, not what they add."""
    return (node for node in descendants(loop) if isinstance(node, cst.AugAssign))
