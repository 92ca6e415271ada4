"""
Evaluations that draw random numbers, of a data set that every process evaluates whole.

After `prepare` torch's generators differ between processes, and so do those of loader workers: noise in a forward pass,
or a random crop in the data set, makes each process's figure another one. Where a decision depends on such a figure,
all processes take that of the main process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.roles import TENSORS, Origin
from ...findings import Finding
from ..dataflow.call_graph import Code, Reach
from ..dataflow.solver import Slot
from ..dataflow.values import Instance, Klass, Mapping, Sequence, State, Unit, origins
from ..syntax.definitions import plain_values
from ..syntax.nodes import is_zero, keyword
from ..syntax.scopes import Binding
from ..syntax.walk import descendants
from ..training.draws import drawn, random_transform
from ..training.training import Training, method_name, outside_name
from .decisions import Decision, Joint, deciding, undecided
from .divergence import Equality

_LONGEST = 40
"""Of a longer call only the last name is repeated."""
_REMEDY = "decide on the figure of the main process: {0} = broadcast_object_list([{0}])[0]"


@dataclass(frozen=True)
class RandomEvaluation:
    """An evaluation loop whose figures differ, although every process reads the same rows."""

    loop: cst.CSTNode
    unit: Unit
    draw: str
    """What draws the random numbers, as the script spells it."""


def random_evaluations(
    state: State, reach: Reach, training: Training, shared: Iterable[cst.CSTNode]
) -> Iterator[RandomEvaluation]:
    """The evaluation loops that every process runs on the whole data set, with random numbers of its own."""
    sharded = set(shared)
    for loop in training.eval_loops:
        if loop in sharded:
            continue
        unit = next(u for u in reach.units if loop in u.names.parents)
        draw = _in_step(state, reach, unit, loop) or _in_data(state, reach, loop)
        if draw:
            yield RandomEvaluation(loop, unit, draw)


def agreements(
    state: State,
    reach: Reach,
    training: Training,
    plain: Equality,
    own: Iterable[tuple[Unit, Gather]],
    open_to: Callable[[Unit, cst.CSTNode], bool],
) -> Iterator[tuple[Unit, Gather | Finding]]:
    """
    What makes the decisions equal that depend on such evaluations, or the findings for those that stay different.

    Args:
        state: the solved program.
        reach: its call graph.
        training: its training.
        plain: what is equal on all processes, were it not for those random numbers.
        own: what is made whole already.
        open_to: whether an evaluation may be changed: all processes run it, and no other program calls it.
    """
    joint, gathers = Joint(state, reach, training, plain), list(own)

    def open_decisions(loop: cst.CSTNode, more: Iterable[tuple[Unit, Gather]]) -> list[tuple[Unit, Decision]]:
        random = plain.also(loop, (*gathers, *more))

        def differs(unit: Unit, node: cst.CSTNode) -> bool:
            return random.is_local(unit, node) and not plain.is_local(unit, node)

        return [(unit, found) for unit in reach.units for found in deciding(unit, reach, joint, differs)]

    for evaluation in random_evaluations(state, reach, training, plain.shared):
        if not open_decisions(evaluation.loop, ()):
            continue
        unit, random = evaluation.unit, plain.also(evaluation.loop, gathers)
        gather = _received(state, plain, random, evaluation) if open_to(unit, evaluation.loop) else None
        if gather is not None:
            yield unit, gather
        left = open_decisions(evaluation.loop, [(unit, gather)] if gather is not None else [])
        for place, found in left:
            why = f"and each process evaluates the whole set with random numbers of its own ({evaluation.draw})"
            yield place, undecided(place, found, why, _remedy(place, found))


def _remedy(unit: Unit, found: Decision) -> str:
    held = [n for n in descendants(found.value) if isinstance(n, cst.Name) and n in unit.names.within]
    return _REMEDY.format(held[0].value if len(held) == 1 else "value")


# What is random ---------------------------------------------------------------------------------------------------


def _in_step(state: State, reach: Reach, unit: Unit, loop: cst.CSTNode) -> str:
    """What draws from torch's generator in a turn of an evaluation loop, the model in evaluation mode; or nothing."""
    body = loop.body if isinstance(loop, (cst.For, cst.While)) else _comprehension(unit, loop)
    for node in reach.runs(body, unit):
        record = state.calls.get(node) if isinstance(node, cst.Call) else None
        found = drawn(record) if record is not None else None
        if record is None or found is None or found.generator != "torch":
            continue
        own = any(
            arg.keyword is not None and arg.keyword.value in ("generator", "training") for arg in record.node.args
        )
        if not own and not _in_training_alone(record.unit, record.node) and not _is_off(reach, record.unit, node):
            return _spelled(record.unit, record.node)
    return ""


def _in_training_alone(unit: Unit, call: cst.Call) -> bool:
    """Whether code asks for `.training` on the way to a call: a layer that is noisy in training mode alone."""
    function = unit.names.function(call)
    for around in unit.names.enclosing(call, cst.If, cst.IfExp):
        if isinstance(around, (cst.If, cst.IfExp)) and _asks_training(around.test):
            return True
    here = unit.names.order(call)
    early = (n for n in descendants(function) if isinstance(n, cst.If) and unit.names.order(n) < here)
    return any(
        _asks_training(choice.test) and any(isinstance(n, cst.Return) for n in descendants(choice.body))
        for choice in early
    )


def _is_off(reach: Reach, unit: Unit, node: cst.CSTNode) -> bool:
    """Whether a node is under a parameter that is `False` in every call: ``generate(x, sample=False)``."""
    below = node
    for around in unit.names.ancestors(node):
        if isinstance(around, (cst.If, cst.IfExp)) and below is around.body and isinstance(around.test, cst.Name):
            binding = unit.names.binding(around.test)
            params = [d for d in binding.definitions if isinstance(d, cst.Param)] if binding is not None else []
            if binding is not None and params and len(params) == len(binding.definitions):
                values = [value for _, value in reach.given(binding)]
                left_out = len(values) < len(reach.sites(binding.scope.node))
                values += [p.default for p in params if p.default is not None] if left_out else []
                if values and all(isinstance(value, cst.Name) and value.value == "False" for value in values):
                    return True
        below = around
    return False


def _asks_training(test: cst.CSTNode) -> bool:
    return any(isinstance(n, cst.Attribute) and n.attr.value == "training" for n in descendants(test))


def _in_data(state: State, reach: Reach, loop: cst.CSTNode) -> str:
    """What draws random numbers in the data set of a loop's loader; or nothing."""
    for loader in reach.loaders(loop):
        if not isinstance(loader.node, cst.Call) or loader.node not in state.calls:
            continue
        unit = state.calls[loader.node].unit
        data = keyword(loader.node, "dataset", 0)
        workers = keyword(loader.node, "num_workers", 5)
        if data is None:
            continue
        found = _of_data_set(state, reach, data, workers is not None and not is_zero(workers))
        if found := found or _of_transforms(state, unit, data, set()):
            return found
    return ""


def _of_data_set(state: State, reach: Reach, data: cst.BaseExpression, workers: bool) -> str:
    """A draw in `__getitem__` of the program's own data set: of torch, or in a worker of any generator."""
    held = state.values.get(data)
    for thing in held.things if held is not None else ():
        klass = (
            thing.klass
            if isinstance(thing, Instance)
            else state.klass.get(thing)
            if isinstance(thing, Origin)
            else None
        )
        getter = klass.method("__getitem__") if isinstance(klass, Klass) else None
        if getter is None:
            continue
        for node in reach.runs(getter.node.body, getter.unit):
            record = state.calls.get(node) if isinstance(node, cst.Call) else None
            found = drawn(record) if record is not None else None
            if record is not None and found is not None and (found.generator == "torch" or workers):
                return _spelled(record.unit, record.node)
    return ""


def _of_transforms(state: State, unit: Unit, value: cst.BaseExpression, seen: set[Binding]) -> str:
    """A random transform among what a data set is made of, as far as names lead."""
    for node in descendants(value):
        record = state.calls.get(node) if isinstance(node, cst.Call) else None
        if record is not None and random_transform(outside_name(record)):
            return _spelled(unit, record.node)
        binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
        if isinstance(node, cst.Name) and binding is not None and binding not in seen:
            seen.add(binding)
            for behind in plain_values(unit.names, node):
                if found := _of_transforms(state, unit, behind, seen):
                    return found
    return ""


def _spelled(unit: Unit, call: cst.Call) -> str:
    text = " ".join(unit.names.module.code_for_node(call.func).split())
    return f"`{text if len(text) <= _LONGEST else method_name(call)}`"


# How processes agree ------------------------------------------------------------------------------------------------


def _received(state: State, plain: Equality, random: Equality, evaluation: RandomEvaluation) -> Gather | None:
    """What an evaluation gives, received from the main process; None where it cannot be sent, or not all come by."""
    unit, loop = evaluation.unit, evaluation.loop
    tests = (a.test for a in unit.names.enclosing(loop, cst.If, cst.While) if isinstance(a, (cst.If, cst.While)))
    if any(plain.is_local(unit, test) for test in tests):
        return None
    because = f"random numbers of the evaluation differ ({evaluation.draw}), and all processes must decide alike"
    if not isinstance(loop, (cst.For, cst.While)):
        whole = _comprehension(unit, loop)
        if isinstance(whole, cst.GeneratorExp):
            taker = unit.names.parents.get(unit.names.parents[whole])
            whole = taker if isinstance(taker, cst.Call) else whole
        sent = not isinstance(whole, cst.GeneratorExp) and not _has_tensors(state, [whole])
        return Gather(whole, (), because, form=Form.RECEIVE) if sent else None
    names = _read_after(unit, plain, random, loop)
    if not names or any(_has_tensors(state, reads) for reads in names.values()):
        return None
    return Gather(loop, tuple(names), because, form=Form.RECEIVE)


def _read_after(
    unit: Unit, plain: Equality, random: Equality, loop: cst.For | cst.While
) -> dict[str, list[cst.CSTNode]]:
    """What a loop sets or fills, and the code after it in the same function reads."""
    inside = set(descendants(loop))
    code: Code = unit.names.function(loop)
    found: dict[str, list[cst.CSTNode]] = {}
    for binding in unit.names.scopes[code].bindings.values():
        if not any(node in inside for node in (*binding.definitions, *binding.reads)):
            continue
        for read in binding.reads:
            later = unit.names.order(read) > unit.names.end(loop) and unit.names.function(read) is code
            if later and random.is_local(unit, read) and not plain.is_local(unit, read):
                found.setdefault(binding.name, []).append(read)
    return found


def _has_tensors(state: State, nodes: Iterable[cst.CSTNode]) -> bool:
    """Whether tensors are in something: on a GPU, the other processes could not use what they receive."""
    pending, seen = [slot for node in nodes if (slot := state.values.get(node)) is not None], set[Slot]()
    while pending:
        slot = pending.pop()
        if slot in seen:
            continue
        seen.add(slot)
        if origins(slot, *TENSORS):
            return True
        for thing in slot.things:
            if isinstance(thing, Sequence):
                pending += [*thing.items, thing.rest]
            elif isinstance(thing, Mapping):
                pending += [*thing.entries.values(), thing.rest]
    return False


def _comprehension(unit: Unit, clause: cst.CSTNode) -> cst.CSTNode:
    return next((a for a in unit.names.ancestors(clause) if isinstance(a, cst.BaseComp)), clause)
