"""
How many elements a list holds: by what is appended, and under which conditions; whatever the elements are.

A buffer that every turn of a loop appends to is as long on all processes. One that only some rows come into is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from ...facts.container_methods import adds_one_in_order, takes_out
from ...facts.torch_api import tensor_parts
from ..dataflow.callees import method_name
from ..dataflow.values import Instance, Mapping, Sequence, State, Unit
from .writes import Key, Part

_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
Keys = Callable[[Unit, cst.CSTNode], Iterable[Key]]


@dataclass(frozen=True)
class Length:
    """How many elements a variable or an attribute holds."""

    held: Key


def is_list(state: State, node: cst.CSTNode) -> bool:
    """Whether a variable, or an attribute of ``self``, holds a list of the program, and nothing else."""
    named = isinstance(node, cst.Name) or (
        isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == "self"
    )
    slot = state.values.get(node) if named else None
    return slot is not None and bool(slot.things) and all(isinstance(thing, Sequence) for thing in slot.things)


def counts_rows(state: State, node: cst.Call) -> bool:
    """``len(x)``, ``x.size(0)``, ``x.numel()`` of what is no object or dict of the program."""
    name = method_name(node)
    if name != "len" or len(node.args) != 1:
        return isinstance(node.func, cst.Attribute) and tensor_parts.counts(name)
    slot = state.values.get(node.args[0].value)
    return slot is None or not any(isinstance(thing, (Instance, Mapping)) for thing in slot.things)


def changed_by(unit: Unit, value: cst.CSTNode | Part, keys: Keys, conditions: Keys, measured: Keys) -> Iterator[Key]:
    """
    What the number of elements depends on, of one thing that a list is set to, or given.

    Args:
        unit: the module.
        value: the new list, or what a method of the list is given.
        keys: what the value of an expression depends on.
        conditions: what it depends on whether code is run.
        measured: what the number of elements of an expression depends on.
    """
    node, parents = value.call if isinstance(value, Part) else value, unit.names.parents
    yield from conditions(unit, node)
    argument = parents.get(node)
    call = parents.get(argument) if isinstance(argument, cst.Arg) else None
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
        yield from keys(unit, node) if not _is_given_no_part(call.func.attr.value) else ()
    elif isinstance(node, (cst.List, cst.Tuple)):
        for element in node.elements:
            yield from measured(unit, element.value) if isinstance(element, cst.StarredElement) else ()
    elif isinstance(node, _COMPREHENSIONS):
        clause: cst.CompFor | None = node.for_in
        while clause is not None:
            yield from (key for test in clause.ifs for key in keys(unit, test.test))
            yield from measured(unit, clause.iter)
            clause = clause.inner_for_in
    elif not (isinstance(node, cst.Call) and all(arg.keyword is not None for arg in node.args)):
        yield from measured(unit, node)  # list(), deque(maxlen=8)


def _is_given_no_part(method: str) -> bool:
    """Whether a method of a list changes its length by one, or empties it, whatever it is given."""
    return adds_one_in_order(method) or takes_out(method)
