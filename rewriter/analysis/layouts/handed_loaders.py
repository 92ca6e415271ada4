"""Prepared loaders that are handed to code which cannot be seen: it reads the rows of one process."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.batches import HandedLoader
from ...facts.roles import Role
from ...facts.torch_api import questions
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import State, Unit, origins


def handed_loaders(
    state: State, unit: Unit, reach: Reach, shared: Container[cst.CSTNode], is_early: Callable[[cst.Call], bool]
) -> Iterator[Reason]:
    """
    Calls of functions outside the program that are given such a loader, and give no loader back. One finding for each
    function.

    Args:
        state: the solved program.
        unit: a module.
        reach: its call graph.
        shared: the loops whose loaders are prepared.
        is_early: a call comes before `prepare`, in the same code.
    """
    prepared = {loader for loop, loaders in state.loaders.items() if loop in shared for loader in loaders}
    told: set[str] = set()
    for call in unit.names.calls:
        record = state.calls.get(call)
        name = outside_name(record) if record is not None else ""
        if name in told or not _reads(name) or reach.function_of(call) not in reach.reachable:
            continue
        values = (arg.value for arg in call.args)
        given = [v for v in values if not prepared.isdisjoint(origins(state.values.get(v), Role.LOADER))]
        if given and not is_early(call) and not _goes_on(unit, call):
            told.add(name)
            yield HandedLoader(call, unit.names.one_line(call.func), unit.names.one_line(given[0]))


def _reads(name: str) -> bool:
    """Whether a name is of a function of which nothing is known: no class, and nothing of Python's own."""
    package, _, rest = name.partition(".")
    unknown = bool(rest) and questions.is_unknown(name) and (package == "torch" or not questions.is_described(package))
    return unknown and not name.rpartition(".")[2][:1].isupper()


def _goes_on(unit: Unit, call: cst.Call) -> bool:
    """Whether the rows may come out again, of a loader around the loader: no loop reads what a statement throws away,
    nor a variable that is in the head of none."""
    names, above = unit.names, unit.names.parents.get(call)
    if isinstance(above, cst.Expr):
        return False
    target = above.targets[0].target if isinstance(above, cst.Assign) and len(above.targets) == 1 else None
    binding = names.binding(target) if isinstance(target, cst.Name) else None
    if binding is None:
        return True
    return any(_is_iterated(unit, read) for read in binding.reads)


def _is_iterated(unit: Unit, read: cst.CSTNode) -> bool:
    """Whether a read is in the head of a loop, or an argument of a call that is no print: it may be read there."""
    here = read
    for around in unit.names.ancestors(read):
        if isinstance(around, (cst.For, cst.CompFor)) and around.iter is here:
            return True
        if isinstance(around, cst.Call) and here is not around.func and method_name(around) != "print":
            return True
        here = around
    return False
