"""Loaders that share their rows among processes by a sampler, and why it is not known of one."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.distributed import Hindrance, NotReplaced
from ...facts.roles import Origin, Role
from ...facts.torch_api import process_calls
from ..dataflow.call_graph import Reach
from ..dataflow.callees import outside_name
from ..dataflow.values import Instance, Klass, State, Unit, origins
from ..syntax.nodes import keyword
from ..syntax.walk import descendants


def sharded(state: State) -> Iterator[Origin]:
    """The loaders that are given a DistributedSampler, as far as can be seen."""
    samplers = {r.node for r in state.calls.values() if process_calls.is_distributed_sampler(outside_name(r))}
    makers: set[cst.CSTNode] = set()
    for record in state.calls.values():
        if any(loader.node is record.node for loader in origins(record.result, Role.LOADER)):
            given = [keyword(record.node, word) for word in ("sampler", "batch_sampler")]
            if any(value is not None and not samplers.isdisjoint(_made(state, value, 2)) for value in given):
                makers.add(record.node)
    results = (origins(record.result, Role.LOADER) for record in state.calls.values())
    for loaders in (*results, *state.loaders.values()):  # those that a function gives back, too
        yield from (loader for loader in loaders if loader.node in makers)


def unshared(state: State, reach: Reach, unit: Unit, loop: cst.CSTNode) -> tuple[Unit, Reason]:
    """Why it is not known that the processes share the rows of a loop: said of its loader."""
    makers = [loader.node for loader in reach.loaders(loop) if isinstance(loader.node, cst.Call)]
    for maker in makers:
        for klass in _own_samplers(state, maker):
            name = klass.node.name.value
            return reach.unit_of(maker, unit), NotReplaced(maker, Hindrance.OWN_SAMPLER, name)
    if makers:
        return reach.unit_of(makers[0], unit), NotReplaced(makers[0], Hindrance.NO_SAMPLER)
    return unit, NotReplaced(loop, Hindrance.UNKNOWN_LOADER)


def _own_samplers(state: State, maker: cst.Call) -> Iterator[Klass]:
    """The classes of the program of which the sampler of a loader is, where they ask which process this is."""
    for value in (keyword(maker, word) for word in ("sampler", "batch_sampler")):
        held = state.values.get(value) if value is not None else None
        for thing in held.things if held is not None else ():
            klass = thing.klass if isinstance(thing, Instance) else state.klass.get(thing)
            inside = (
                node for below in (klass.lineage() if klass is not None else ()) for node in descendants(below.node)
            )
            if klass is not None and any(_asks_rank(state, node) for node in inside):
                yield klass


def _made(state: State, value: cst.BaseExpression, depth: int) -> set[cst.CSTNode]:
    """The calls that make what an expression gives, and what those are given."""
    held = state.values.get(value)
    nodes = {getattr(thing, "node", None) for thing in (held.things if held is not None else ())}
    found = {node for node in nodes if isinstance(node, cst.Call)}
    inner = [arg.value for node in found for arg in node.args] if depth else []
    return found | {node for value in inner for node in _made(state, value, depth - 1)}


def _asks_rank(state: State, node: cst.CSTNode) -> bool:
    record = state.calls.get(node) if isinstance(node, cst.Call) else None
    return record is not None and bool(process_calls.rank_number(outside_name(record)))


def settled(state: State) -> bool:
    """Whether a script that has an accelerator shares its rows by itself: its author has settled the rest as well."""
    return any(process_calls.is_distributed_sampler(outside_name(record)) for record in state.calls.values())
