"""Training loops that no loader feeds."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from ...dataflow.call_graph import Code, Reach
from ...dataflow.callees import method_name
from ...dataflow.values import CallRecord, State, Unit
from ...syntax.definitions import plain_values
from ...syntax.own_names import set_by_name
from ...syntax.walk import descendants
from ...training.training import Training


class HandTraining(NamedTuple):
    """The outermost loop of a training, in the function that runs the backward passes."""

    loop: cst.For | cst.While
    unit: Unit
    backwards: list[CallRecord]
    steps: list[cst.CSTNode]
    """The innermost loops around the backward passes."""
    around: cst.For | cst.While | None = None
    """The loop in whose turns the whole training runs again, with models made anew: for each fold, for each seed."""

    @property
    def code(self) -> Code:
        """The function that contains the loop, or the module."""
        return self.unit.names.function(self.loop)

    def reads(self, name: cst.Name, block: cst.CSTNode) -> list[cst.Name]:
        """The reads of a variable of this code in one block of it."""
        binding = self.unit.names.binding(name)
        inside = set(descendants(block))
        return [read for read in binding.reads if read in inside] if binding is not None else []

    def evaluates(self, state: State, reach: Reach, node: cst.CSTNode) -> bool:
        """Whether a node is in a loop of its own, beside the steps, in which a model runs and nothing is trained: it is
        evaluated, on all rows by every process."""
        around = next(iter(self.unit.names.enclosing(node, cst.For, cst.While)), None)
        steps = [step for step in self.steps if step in self.unit.names.parents]
        if not isinstance(around, (cst.For, cst.While)) or len(steps) < len(self.steps):
            return False
        beside = not any(a is around for step in steps for a in (step, *self.unit.names.ancestors(step)))
        return beside and any(run in state.forwards for run in reach.runs_in(around))


def trainings(state: State, reach: Reach, training: Training) -> list[HandTraining]:
    """The loops around the backward passes of a program."""
    found: dict[cst.CSTNode, HandTraining] = {}
    for record in training.backwards:
        place = _around(state, reach, record)
        if place is None:  # one step of its own, the same on all processes
            continue
        loop, step, unit = place
        one = found.setdefault(loop, HandTraining(loop, unit, [], []))
        one.backwards.append(record)
        one.steps.append(step)
    return list(found.values())


def of_each_model(reach: Reach, training: Training, whole: HandTraining) -> HandTraining | None:
    """The training of one model, where the outermost loop makes the models anew in each turn, and trains them in
    another loop."""
    ran = set(reach.runs(whole.loop.body, whole.unit))
    models = {o for call, o in training.forwards.items() if call in ran and o in training.models}
    if not models or not all(o.node in ran for o in models):
        return None
    loops = []
    for step in whole.steps:
        if step not in whole.unit.names.parents:
            return None
        inside = [a for a in (step, *whole.unit.names.ancestors(step)) if isinstance(a, (cst.For, cst.While))]
        loops.append([a for a in inside[: inside.index(whole.loop)] if whole.unit.names.function(a) is whole.code])
    inner = loops[0][-1] if loops and loops[0] else None
    if inner is None or any(not found or found[-1] is not inner for found in loops):
        return None
    trained = set(reach.runs(inner.body, whole.unit))
    if any(o.node in trained for o in models):
        return None
    return whole._replace(loop=inner, around=whole.loop)


def unfed(reach: Reach, training: Training, found: list[HandTraining]) -> list[HandTraining]:
    """Those of them of which no step runs in a loop over a loader."""
    return [
        one
        for one in found
        if not any(
            loop in training.train_loops
            for record in one.backwards
            for loop in reach.batch_loops(record.node, record.unit)
        )
    ]


def _around(
    state: State, reach: Reach, record: CallRecord
) -> tuple[cst.For | cst.While, cst.For | cst.While, Unit] | None:
    """The outermost and the innermost loop around a backward pass, in the first function with one on the way up."""
    call, unit = record.node, record.unit
    seen: set[cst.CSTNode] = set()
    while True:
        loops = [loop for loop in reach.loops(call, unit) if isinstance(loop, (cst.For, cst.While))]
        if loops:
            return loops[-1], loops[0], unit
        code = unit.names.function(call)
        sites = [site for site in reach.sites(code) if reach.function_of(site) in reach.reachable]
        if not sites:  # a closure: the optimizer calls it
            loops = [around for around in unit.names.ancestors(code) if isinstance(around, (cst.For, cst.While))]
            return (loops[-1], loops[0], unit) if loops else None
        if code in seen:
            return None
        seen.add(code)
        call, unit = sites[0], state.calls[sites[0]].unit


def counts_rounds(unit: Unit, source: cst.BaseExpression) -> bool:
    """Whether a loop over it counts rounds: a range, with something around it (``bar = tqdm(range(100))``) or not."""
    values = plain_values(unit.names, source) if isinstance(source, cst.Name) else [source]
    for value in values:
        while isinstance(value, cst.Call) and value.args and method_name(value) not in _COUNTERS:
            value = value.args[0].value
        if not isinstance(value, cst.Call) or method_name(value) not in _COUNTERS:
            return False
    return bool(values)


def is_undefined(unit: Unit, source: cst.BaseExpression) -> bool:
    """Whether it is a name that nothing defines: the script fails there."""
    if not isinstance(source, cst.Name) or unit.names.stars:
        return False
    binding = unit.names.binding(source)
    by_name = (set_by_name(node) for node in unit.names.every(cst.Assign, cst.Call))
    return (binding is None or not binding.definitions) and not any(one in ("", source.value) for one in by_name)


_COUNTERS = ("range", "trange", "count")
