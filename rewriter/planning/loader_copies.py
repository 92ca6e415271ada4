"""
A loader of its own for an evaluation that must see the whole set, and reads a loader that the training reads as well.

``predict(model, valid_loader)`` beside ``run(model, valid_loader, optimizer)``: the training's loader is prepared, and
the evaluation is given one that is made in the same way, and that nobody prepares.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

import libcst as cst

from ..analysis.dataflow.call_graph import Reach
from ..analysis.dataflow.callees import outside_name
from ..analysis.dataflow.values import Unit
from ..analysis.layouts.metrics import Evaluation
from ..analysis.syntax.scopes import Binding
from ..analysis.syntax.walk import nodes_in
from ..facts.accelerator import LoaderCopy
from ..facts.roles import Origin

_LOADER = "torch.utils.data.DataLoader"


def loader_copies(
    reach: Reach, evaluation: Evaluation, trained: Container[Origin], whole: Container[cst.CSTNode]
) -> list[tuple[Unit, LoaderCopy]]:
    """
    The copies of an evaluation's loaders; none where one of them cannot be made, or not be given to it alone.

    Args:
        reach: the call graph of the program.
        evaluation: it is not understood.
        trained: the loaders that the training iterates; the evaluation reads one of them at least.
        whole: the loops of all evaluations that are not understood.
    """
    loops = [loop for loop, loaders in reach.state.loaders.items() if loop is not evaluation.loop]
    found: list[tuple[Unit, LoaderCopy]] = []
    for loader in evaluation.loaders:
        if loader not in trained:
            continue
        made = _made(reach, loader)
        reads = list(_reads(reach, evaluation, loader, made[1])) if made is not None else []
        below = {n for at in reads for n in _runs(reach, at, evaluation.loop)}
        others = [loop for loop in loops if loop in below and loader in reach.loaders(loop)]
        if made is None or not reads or any(read is None for read in reads) or any(o not in whole for o in others):
            return []
        unit, binding, call = made
        names = tuple(read for read in reads if read is not None)
        found.append((unit, LoaderCopy(unit.names.statement(call), _new(unit, binding.name), call, names)))
    return found


def _runs(reach: Reach, read: cst.Name | None, loop: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """What runs with what a read gives: the loop itself, or the function that is given it."""
    if read is None:
        return ()
    unit = reach.unit_of(read, reach.units[0])
    arg = unit.names.parents.get(read)
    call = unit.names.parents.get(arg) if isinstance(arg, cst.Arg) else None
    if isinstance(call, cst.Call) and loop not in unit.names.ancestors(read):
        return (node for function in reach.called(call) for node in reach.runs(function.body, reach.unit(function)))
    return ()


def _made(reach: Reach, loader: Origin) -> tuple[Unit, Binding, cst.Call] | None:
    """The variable that is given a loader where it is made, once, by a call that can be written again."""
    call = loader.node
    unit = reach.unit_of(call, reach.units[0])
    record = reach.state.calls.get(call) if isinstance(call, cst.Call) else None
    assign = unit.names.parents.get(call)
    if record is None or not isinstance(call, cst.Call) or outside_name(record) != _LOADER:
        return None
    target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
    binding = unit.names.binding(target) if isinstance(target, cst.Name) else None
    if (
        binding is None
        or len(binding.definitions) != 1
        or any(node for arg in call.args for node in nodes_in(arg, cst.Call))
    ):
        return None
    return unit, binding, call


def _reads(reach: Reach, evaluation: Evaluation, loader: Origin, made: Binding) -> Iterator[cst.Name | None]:
    """The reads of a loader's variable that give it to an evaluation; None for any other way by which it comes."""
    unit, loop = evaluation.unit, evaluation.loop
    iterated = loop.iter if isinstance(loop, (cst.For, cst.CompFor)) else loop
    names = [n for n in nodes_in(iterated, cst.Name) if _holds(reach, n, loader)]
    for name in names:
        binding = unit.names.binding(name)
        if binding is made and _is_at_hand(unit, name, made):
            yield name
        elif binding is None or not all(isinstance(d, cst.Param) for d in binding.definitions):
            yield None
        else:
            given = [(u, value) for u, value in reach.given(binding) if _holds(reach, value, loader)]
            if not given:
                yield None
            for at, value in given:
                plain = isinstance(value, cst.Name) and at.names.binding(value) is made
                yield value if plain and isinstance(value, cst.Name) and _is_at_hand(at, value, made) else None
    if not names:
        yield None


def _holds(reach: Reach, node: cst.CSTNode, loader: Origin) -> bool:
    slot = reach.state.values.get(node)
    return slot is not None and loader in slot.things


def _is_at_hand(unit: Unit, read: cst.Name, made: Binding) -> bool:
    """Whether a variable is read where it is given its value, or is one of the module: its copy is there, too."""
    home = unit.names.function(made.definitions[0])
    return isinstance(home, cst.Module) or unit.names.function(read) is home


def _new(unit: Unit, name: str) -> str:
    """A name that the module does not have."""
    known = {n for scope in unit.names.scopes.values() for n in scope.bindings}
    return next(each for each in _names(name) if each not in known)


def _names(name: str) -> Iterator[str]:
    yield f"whole_{name}"
    count = 2
    while True:
        yield f"whole_{name}_{count}"
        count += 1
