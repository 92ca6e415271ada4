"""
Batches that are drawn one by one, not by a ``for`` over their loader: ``next(iterator)``, ``iterator.__next__()``.

A loop that draws iterates the loader as a ``for`` over it would.
"""

from __future__ import annotations

import libcst as cst

from ...facts.roles import Origin, Role
from ..syntax.walk import nodes_in
from .call_binding import EvaluatedCall
from .callees import method_name, outside_name
from .solver import Slot, Thing
from .values import CallRecord, Sequence, State, origins


def iterator_drawn(record: CallRecord) -> tuple[cst.BaseExpression, Slot] | None:
    """The iterator that a call draws from, and what it holds; None for other calls."""
    return _of(record, "next")


def iterable_opened(record: CallRecord) -> tuple[cst.BaseExpression, Slot] | None:
    """What a call makes an iterator of, and what that holds: ``iter(loader)``, ``loader.__iter__()``."""
    return _of(record, "iter")


def _of(record: CallRecord, word: str) -> tuple[cst.BaseExpression, Slot] | None:
    call = record.node
    if outside_name(record) == f"builtins.{word}" and call.args and record.first is not None:
        return call.args[0].value, record.first
    if method_name(call) == f"__{word}__" and isinstance(call.func, cst.Attribute) and record.receiver is not None:
        return call.func.value, record.receiver
    return None


def only_draws(state: State, block: cst.CSTNode) -> bool:
    """Whether all that a block calls is to draw the next batch of a loader: what fails is the end of the data, and
    prepared loaders come to it on all processes together."""
    records = [state.calls.get(node) for node in nodes_in(block, cst.Call)]
    return bool(records) and all(
        record is not None and iterator_drawn(record) is not None and bool(origins(record.result, Role.BATCH))
        for record in records
    )


def drawn(call: EvaluatedCall) -> None:
    """Note a loop that draws its batches."""
    func = call.node.func
    source = call.node.args[0].value if call.node.args else func.value if isinstance(func, cst.Attribute) else None
    if isinstance(source, cst.Call):
        return  # next(iter(loader)): one batch to look at, each time from the start
    loop = next(call.unit.names.enclosing(call.node, cst.For, cst.While), None)
    if loop is not None:
        opened: set[Thing] = set()
        call.state.solver.watch(call.result, lambda thing: _iterates(call.state, loop, thing, opened))
    else:
        call.state.drawn[call.node] = call.result


def _iterates(state: State, loop: cst.CSTNode, thing: Thing, opened: set[Thing]) -> None:
    if isinstance(thing, Origin) and thing.role is Role.BATCH and thing.source is not None:
        state.loaders.setdefault(loop, {})[thing.source] = None
    elif isinstance(thing, Sequence) and thing not in opened:
        opened.add(thing)
        for part in thing.items:  # a generator that yields the parts of a batch: `yield x, y`
            state.solver.watch(part, lambda inner: _iterates(state, loop, inner, opened))


def drawn_by_callers(state: State) -> None:
    """Note the loops that draw through a function: ``batches.next()``, which calls ``next(self.iterator)``."""
    for call, held in state.drawn.items():
        seen: set[cst.CSTNode] = set()
        pending = [call]
        while pending:
            site = pending.pop()
            names = state.calls[site].unit.names
            loop = next(names.enclosing(site, cst.For, cst.While), None)
            function = names.function(site)
            if loop is not None:
                for thing in list(held.things):
                    _iterates(state, loop, thing, set())
            elif function not in seen:
                seen.add(function)
                pending += state.sites.get(function, ())
