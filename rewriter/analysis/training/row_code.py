"""Code that loaders run for the rows of a data set: each process runs it for its own rows, in its workers or itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from ...facts.roles import Origin, Role
from ..dataflow.call_graph import Reach
from ..dataflow.constant_values import constants_of
from ..dataflow.solver import Slot, Thing
from ..dataflow.values import Bound, CallRecord, Function, Instance, Klass, Sequence, State, Unknown, origins
from ..syntax.nodes import FunctionNode, dotted, keyword


def for_rows(state: State, reach: Reach) -> set[FunctionNode]:
    """The functions that loaders run for their rows, whoever else calls them: no process can wait there for others."""
    return state.once(for_rows, lambda: set(_for_rows(state, reach)))


def only_for_rows(state: State, reach: Reach) -> set[FunctionNode]:
    """Those of them that no other code calls."""
    return state.once(only_for_rows, lambda: _only_for_rows(reach, for_rows(state, reach)))


def _for_rows(state: State, reach: Reach) -> Iterator[FunctionNode]:
    for functions, nodes in run_for_rows(state, reach, lambda loader: True):
        yield from functions
        for node in nodes:
            yield from reach.called(node) if isinstance(node, cst.Call) else ()


def _only_for_rows(reach: Reach, found: set[FunctionNode]) -> set[FunctionNode]:
    while True:
        left = {f for f in found if all(reach.function_of(s.node) in found for s in reach.reached_sites(f))}
        if left == found:
            return found
        found = left


def run_for_rows(
    state: State, reach: Reach, asked: Callable[[CallRecord], bool]
) -> Iterator[tuple[list[FunctionNode], list[cst.CSTNode]]]:
    """
    What runs for the rows of each class of data sets, and of each loader: the transforms that a data set of a package
    is given, and what makes batches of rows.

    Args:
        state: the program.
        reach: its call graph.
        asked: which loaders count.

    Yields:
        The functions that a loader calls, and every node that runs in them.
    """
    made = [r for r in state.calls.values() if any(o.node is r.node for o in origins(r.result, Role.LOADER))]
    for klass in [klass for unit in reach.units for klass in unit.classes.values()]:
        getter = klass.method("__getitem__")
        loaders = list(loaders_of(state, klass)) if getter is not None else []
        counted = [loader for loader in loaders or made if asked(loader)]
        if getter is None or not counted or not _is_set_of_rows(klass):
            continue
        yield _run(state, reach, [getter, *(f for loader in counted for f in _collating(state, loader))], klass)
    for loader in filter(asked, made):
        data = keyword(loader.node, "dataset", 0)
        held = state.values.get(data) if data is not None else None
        others = [thing for thing in (held.things if held is not None else ()) if isinstance(thing, Unknown)]
        functions = [f for thing in others for slot in _given(state, thing.node) for f in _functions(state, slot)]
        if functions := [*functions, *_collating(state, loader)]:
            yield _run(state, reach, functions)


def _run(
    state: State, reach: Reach, pending: list[Function], klass: Klass | None = None
) -> tuple[list[FunctionNode], list[cst.CSTNode]]:
    """Some functions, with those that the objects of a class keep and call there, and every node that runs in them."""
    seen: set[Function] = set()
    found: list[cst.CSTNode] = []
    while pending:
        function = pending.pop()
        if function not in seen:
            seen.add(function)
            nodes = list(reach.runs(function.node.body, function.unit))
            found += nodes
            names = {node.attr.value for node in nodes if isinstance(node, cst.Attribute)}
            slots = _kept(state, klass, names) if klass is not None else ()
            pending += [f for slot in slots for f in _functions(state, slot)]
            pending += _own_methods(function, nodes)
    return [function.node for function in seen], found


def _own_methods(function: Function, nodes: list[cst.CSTNode]) -> Iterator[Function]:
    """The methods that a method calls on its object: ``self.shade(image)``, also where nothing seen calls it."""
    names, called = function.unit.names, {dotted(n.func) for n in nodes if isinstance(n, cst.Call)}
    around = set(names.ancestors(function.node))
    for klass in (each for each in function.unit.classes.values() if each.node in around):
        found = (klass.method(name.removeprefix("self.")) for name in called if name.startswith("self."))
        yield from (method for method in found if method is not None)


def _is_set_of_rows(klass: Klass) -> bool:
    return klass.role is Role.DATASET or klass.method("__len__") is not None


def _collating(state: State, loader: CallRecord) -> Iterator[Function]:
    given = keyword(loader.node, "collate_fn")
    yield from _functions(state, state.values.get(given) if given is not None else None)


def _kept(state: State, klass: Klass, names: set[str]) -> Iterator[Slot]:
    """What the objects of a class keep under some names: the transforms that are called for each row."""
    made = (t for record in state.calls.values() if klass in record.callees for t in record.result.things)
    for thing in {thing for thing in made if isinstance(thing, (Instance, Origin))}:
        yield from (state.field(thing, name) for name in names)


def _functions(state: State, slot: Slot | None) -> Iterator[Function]:
    """What may be called of what a slot holds, or by it: by a composition of transforms, which was made with them."""
    for thing in _within(state, slot, _composes):
        if isinstance(thing, Function):
            yield thing
        elif isinstance(thing, Instance) and (call := thing.klass.method("__call__")) is not None:
            yield call
        elif isinstance(thing, Bound) and (method := state.method_of(thing)) is not None:
            yield method


def _composes(thing: Thing) -> bool:
    """Whether what something was made with may be called by it; a base from outside keeps it: ``class P(Compose)``."""
    return isinstance(thing, Unknown) or (isinstance(thing, Instance) and thing.klass.method("__init__") is None)


def _within(state: State, slot: Slot | None, opens: Callable[[Thing], bool]) -> Iterator[Thing]:
    """What a slot holds, with what is in its lists, and what those were made with that are opened."""
    slots, seen = [slot], set[Thing]()
    while slots:
        held = slots.pop()
        for thing in held.things if held is not None else ():
            if thing in seen:
                continue
            seen.add(thing)
            if isinstance(thing, Sequence):
                slots += [*thing.items, thing.rest]
            elif isinstance(thing, (Instance, Origin, Unknown)) and opens(thing):
                slots += _given(state, thing.node)
            yield thing


def _given(state: State, made: cst.CSTNode) -> list[Slot | None]:
    """What something was made with."""
    return [state.values.get(arg.value) for arg in made.args] if isinstance(made, cst.Call) else []


def loaders_of(state: State, klass: Klass) -> Iterator[CallRecord]:
    """The calls that make a loader of a class of data sets, as far as that is seen; also within a data set of a
    package: ``ConcatDataset(parts)``."""

    def is_packed(thing: Thing) -> bool:
        return isinstance(thing, (Origin, Unknown)) and state.klass.get(thing) is None

    for record in state.calls.values():
        made = any(origin.node is record.node for origin in origins(record.result, Role.LOADER))
        data = keyword(record.node, "dataset", 0) if made else None
        for thing in _within(state, state.values.get(data), is_packed) if data is not None else ():
            if klass in (state.klass.get(thing), thing.klass if isinstance(thing, Instance) else None):
                yield record


def has_workers(loader: CallRecord, state: State, usual: bool = False) -> bool:
    """Whether a loader certainly has workers; ``usual``: in a run whose command line gives no options."""
    counts = constants_of(state, usual).argument(loader.unit, loader.node, "num_workers", 5)
    return bool(counts) and all(isinstance(count, int) and count > 0 for count in counts or ())
