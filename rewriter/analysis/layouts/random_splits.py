"""
What chance decides about the data: splits, folds, shuffled lists, drawn by every process for itself.

They must be the same everywhere. A script that seeds them is right as it is; for one that does not, the accelerator
makes the generators those of the first process when it is made, so that it must be made before the draw.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

import libcst as cst

from ...facts.torch_api import randomness, surroundings
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.trails import Trail, traces
from ..dataflow.values import CallRecord, State, Unit, Unknown
from ..syntax.definitions import attribute_assignments
from ..syntax.nodes import keyword


class OwnSeed(NamedTuple):
    """What seeds a generator with what no other process has."""

    unit: Unit
    seed: cst.Call
    generator: str
    """``torch``, ``numpy``, ``python``; empty for a generator that is made here."""
    sources: tuple[cst.CSTNode, ...]
    """The calls that make the seed differ, or draw it; none where it is left to the system."""
    draw: CallRecord | None
    """A call that chooses or orders rows by it, or makes them, if there is one."""
    divides: bool
    """It chooses or orders them."""


def own_seeds(state: State, reach: Reach, rows: Container[cst.CSTNode]) -> Iterator[OwnSeed]:
    """The seeds that differ between processes (the clock, nothing at all), or may. ``rows``: calls that rows are made
    of."""
    records = [r for r in state.calls.values() if reach.function_of(r.node) in reach.reachable]
    seeds = [(record, sources) for record in records if (sources := _of_process(state, record)) is not None]
    for record, sources in seeds:
        if _of_one_row(reach, record):
            continue
        name = outside_name(record)
        drawn = [draw for draw in records if _draws_by(draw, record) and not _of_one_row(reach, draw)]
        chosen = next((draw for draw in drawn if _decides(draw, record)), None)
        made = next((draw for draw in drawn if draw.node in rows), None)
        yield OwnSeed(record.unit, record.node, randomness.seeds(name), sources, chosen or made, chosen is not None)


def _of_process(state: State, record: CallRecord, *, drawn: bool = True) -> tuple[cst.CSTNode, ...] | None:
    """What makes the seed of a generator that of one process; None where a call seeds none, or all alike. ``drawn``: or
    that of the generators of one process, while they differ."""
    name, args = outside_name(record), record.node.args
    made = randomness.makes_generator(name)
    if not made and not randomness.seeds(name):
        return None
    if all(isinstance(arg.value, cst.Name) and arg.value.value == "None" for arg in args):
        return () if made or name.endswith(".seed") else None
    found = []
    for trace in (trace for arg in args for trace in traces(state.values.get(arg.value), Trail.STAMP)):
        source = _source(state, trace.node)
        if surroundings.is_per_process(source) or (drawn and randomness.draws(source) is not None):
            found.append(trace.node)
    return tuple(found) or None


def _draws_by(record: CallRecord, seed: CallRecord) -> bool:
    """Whether a call draws from a generator that another one seeds, or makes."""
    generator = randomness.seeds(outside_name(seed))
    if not generator:
        return seed.node in _makers(record)
    name = outside_name(record)
    return generator in (_kind(record.node, name), _values(record.node, name))


def _decides(record: CallRecord, seed: CallRecord) -> bool:
    """Whether a call that draws from such a generator chooses or orders rows."""
    seeded = outside_name(seed)
    if not randomness.seeds(seeded):
        return randomness.divides_by(seeded, method_name(record.node))
    name = outside_name(record)
    return _orders(name) and _kind(record.node, name) is not None


def _makers(record: CallRecord) -> list[cst.CSTNode]:
    """The calls that may have made the object of a method."""
    held = record.receiver.things if record.receiver is not None else ()
    found: list[cst.CSTNode] = [thing.node for thing in held if isinstance(thing, Unknown)]
    owner = record.node.func.value if isinstance(record.node.func, cst.Attribute) else None
    if isinstance(owner, cst.Attribute):  # `self.generator`, where nothing is seen to call the method
        found += [assign.value for assign in attribute_assignments(record.unit.names, owner)]
    return found


def _source(state: State, node: cst.CSTNode) -> str:
    return outside_name(state.calls[node]) if isinstance(node, cst.Call) and node in state.calls else ""


def _of_one_row(reach: Reach, record: CallRecord) -> bool:
    """Whether code runs for one row, or in a worker: a transform, an item of a data set. There numbers may differ."""
    above = reach.above(record.unit.names.function(record.node))
    names = {code.name.value for code in above if isinstance(code, cst.FunctionDef)}
    given = (keyword(call, "worker_init_fn") for unit in reach.units for call in unit.names.calls)
    return not names.isdisjoint({*_FOR_ROWS, *(value.value for value in given if isinstance(value, cst.Name))})


_FOR_ROWS = frozenset({"__getitem__", "__getitems__", "__call__", "forward"})


def unseeded(state: State, reach: Reach) -> list[tuple[Unit, cst.Call]]:
    """The draws whose generator the script seeds nowhere."""
    seeded = set(_seeded(state, reach))
    if "all" in seeded:
        return []
    found = []
    for unit in reach.units:
        for call in unit.names.calls:
            if call in state.calls and unit.names.function(call) in reach.reachable:
                name = outside_name(state.calls[call])
                kind = _kind(call, name)
                if kind is None and not reach.batch_loops(call, unit):
                    kind = _values(call, name)
                if kind is not None and (kind not in seeded or _makes_seed(state, unit, call)):
                    found.append((unit, call))
    return found


def _makes_seed(state: State, unit: Unit, call: cst.Call) -> bool:
    """``seed = random.randint(1, 10000)``: what seeds the script is drawn before anything is seeded."""
    assign = unit.names.parents.get(call)
    if not isinstance(assign, cst.Assign) or assign.value is not call or len(assign.targets) != 1:
        return False
    target = assign.targets[0].target
    seeds = (r.node for r in state.calls.values() if r.unit is unit and randomness.seeds(outside_name(r)))
    return any(arg.value.deep_equals(target) for seed in seeds for arg in seed.args)


def _seeded(state: State, reach: Reach) -> Iterator[str]:
    """The generators that the script seeds; ``all`` where a function with such a name does it."""
    for call, record in state.calls.items():
        name = outside_name(record)
        if reach.function_of(call) not in reach.reachable:
            continue
        if generator := randomness.seeds(name):
            if _of_process(state, record, drawn=False) is None:
                yield generator
        elif "seed" in method_name(call).lower() and not name.startswith(("torch.", "numpy.", "random.")):
            if not reach.called(call):  # what a function of the script seeds is seen there
                yield "all"


def divides(state: State, call: cst.Call) -> bool:
    """Whether a call draws which rows there are, or their order, and not only numbers."""
    name = outside_name(state.calls[call])
    return _orders(name) and _kind(call, name) is not None


def _orders(name: str) -> bool:
    drawn = randomness.draws(name)
    return randomness.splits(name) is not None or (drawn is not None and drawn.draws in ("order", "choice"))


def splits_by_torch(state: State, reach: Reach) -> bool:
    """Whether a program splits or orders its data by torch's own generator: all processes need it in one state then."""
    return any(
        _kind(call, outside_name(record)) == "torch" and not reach.batch_loops(call, record.unit)
        for call, record in state.calls.items()
        if reach.function_of(call) in reach.reachable
    )


def _kind(call: cst.Call, name: str) -> str | None:
    """Whose numbers a call draws to decide about data; None where it draws none, or names its own generator."""
    if _has_generator(call):
        return None
    keywords = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    split = randomness.splits(name)
    if split is not None:
        shuffled = isinstance(keywords.get("shuffle"), cst.Name) and keywords["shuffle"].value == "True"  # type: ignore[attr-defined]
        return split.generator if split.shuffles == "always" or shuffled else None
    drawn = randomness.draws(name)
    if drawn is None or drawn.draws == "noise" or (drawn.draws == "numbers" and drawn.generator == "torch"):
        return None
    return drawn.generator


def _has_generator(call: cst.Call) -> bool:
    """Whether a call is given a generator of its own, or a seed."""
    return any(a.keyword is not None and a.keyword.value in ("generator", "random_state") for a in call.args)


def _values(call: cst.Call, name: str) -> str | None:
    """Whose numbers a call draws that are data outside the loops over batches, and noise inside."""
    drawn = randomness.draws(name) if not _has_generator(call) else None
    return drawn.generator if drawn is not None and drawn.generator in ("torch", "numpy") else None
