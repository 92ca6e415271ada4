"""
Evaluations that draw random numbers, of a data set that every process evaluates whole.

After `prepare` torch's generators differ between processes, and so do those of loader workers: noise in a forward pass,
or a random crop in the data set, makes each process's figure another one. Where a decision depends on such a figure,
all processes take that of the main process: where the evaluation gives it, or else where it is decided on.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from ...facts.module import Form, Gather
from ...facts.reasons import Reason
from ...facts.reasons.decisions import Agreeing, Agreement, Differs
from ...facts.roles import TENSORS
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.constant_values import constants_of
from ..dataflow.held_code import held_code
from ..dataflow.solver import Slot
from ..dataflow.values import Bound, Function, Instance, Klass, Mapping, Sequence, State, Unit, origins
from ..syntax.definitions import plain_values, unshadowed
from ..syntax.nodes import is_zero, keyword
from ..syntax.scopes import Binding
from ..syntax.walk import contains, descendants, nodes_in
from ..training.draws import drawn, random_transform
from ..training.modes import asks_training, in_training_mode, is_given_mode, noisy_layer
from ..training.training import Training
from .decisions import Decision, deciding, joint_of, undecided
from .divergence import Equality

_LONGEST = 40
"""Of a longer call only the last name is repeated."""


@dataclass(frozen=True)
class RandomEvaluation:
    """An evaluation loop whose figures differ, although every process reads the same rows."""

    loop: cst.CSTNode
    unit: Unit
    draw: str
    """What draws the random numbers, as the script spells it."""

    @property
    def because(self) -> str:
        """Why its figures are received."""
        return f"random numbers of the evaluation differ ({self.draw}), and all processes must decide alike"


def random_evaluations(
    state: State, reach: Reach, training: Training, shared: Iterable[cst.CSTNode]
) -> Iterator[RandomEvaluation]:
    """The evaluation loops that every process runs on the whole data set, with random numbers of its own."""
    sharded = set(shared)
    for loop in training.eval_loops:
        if loop in sharded:
            continue
        unit = next(u for u in reach.units if loop in u.names.parents)
        draw = _in_step(state, reach, training, unit, loop) or _in_data(state, reach, loop)
        if draw:
            yield RandomEvaluation(loop, unit, draw)


def agreements(
    state: State,
    reach: Reach,
    training: Training,
    plain: Equality,
    own: Iterable[tuple[Unit, Gather]],
    open_to: Callable[[Unit, cst.CSTNode], bool],
) -> Iterator[tuple[Unit, Gather | Reason]]:
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
    joint, gathers = joint_of(plain), list(own)

    def open_decisions(random: Equality) -> list[tuple[Unit, Decision]]:
        def differs(unit: Unit, node: cst.CSTNode) -> bool:
            return not plain.is_local(unit, node) and random.is_local(unit, node)

        return [(unit, found) for unit in reach.units for found in deciding(unit, reach, joint, differs)]

    for evaluation in random_evaluations(state, reach, training, plain.shared):
        random = plain.also(evaluation.loop, gathers)
        left = open_decisions(random)
        receiver = Receiver(reach, plain, evaluation.because, open_to)
        new = receiver.given(evaluation.unit, evaluation.loop, random) if left else []
        while new := new or receiver.decided(random, left):
            yield from new
            gathers += new
            new, random = [], plain.also(evaluation.loop, gathers)
            left = open_decisions(random)
        for unit, decision in left:
            remedy, draw = main_decides(unit, decision), evaluation.draw
            yield unit, undecided(unit, decision, Differs.BY_DRAWS, remedy, evaluation.loop, draw=draw)


def main_decides(unit: Unit, found: Decision) -> Agreement:
    """How all processes decide on the figure of the main process."""
    held = [n for n in nodes_in(found.value, cst.Name) if n in unit.names.within]
    return Agreement(Agreeing.BY_MAIN, held[0].value if len(held) == 1 else "value")


# What is random ---------------------------------------------------------------------------------------------------


def _in_step(state: State, reach: Reach, training: Training, unit: Unit, loop: cst.CSTNode) -> str:
    """What draws from torch's generator in a turn of an evaluation loop, the model in the mode that it has there."""
    body = loop.body if isinstance(loop, (cst.For, cst.While)) else _comprehension(unit, loop)
    noisy = in_training_mode(reach, unit, loop)
    for node in reach.runs(body, unit):
        record = state.calls.get(node) if isinstance(node, cst.Call) else None
        found = drawn(record) if record is not None else None
        if record is None or found is None or found.generator != "torch":
            continue
        words = [arg.keyword.value for arg in record.node.args if arg.keyword is not None]
        off = not noisy and (is_given_mode(record.node) or is_in_training_alone(reach, record.unit, record.node))
        if "generator" not in words and not off and not constants_of(state).never(record.unit, node):
            return spelled_call(record.unit, record.node)
    layer = noisy_layer(reach, training, unit, body) if noisy else None
    return f"{spelled_call(*layer)} in training mode" if layer is not None else ""


def is_in_training_alone(reach: Reach, unit: Unit, call: cst.Call) -> bool:
    """Whether code asks for `.training` on the way to a call, or for a parameter that is given nothing else: a layer
    that is noisy in training mode alone."""
    function = unit.names.function(call)
    bindings = unit.names.scopes[function].bindings.values() if isinstance(function, cst.FunctionDef) else ()
    given = {binding: [value for _, value in reach.given(binding)] for binding in bindings}
    modes = {binding.name for binding, values in given.items() if values and all(map(asks_training, values))}

    def asks(test: cst.BaseExpression) -> bool:
        return asks_training(test) or any(name.value in modes for name in nodes_in(test, cst.Name))

    if any(asks(around.test) for around in unit.names.enclosing(call, cst.If, cst.IfExp)):
        return True
    here = unit.names.order(call)
    early = (n for n in nodes_in(function, cst.If) if unit.names.order(n) < here)
    return any(asks(choice.test) and contains(choice.body, cst.Return) for choice in early)


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
        made_elsewhere = workers is not None and not is_zero(workers)
        used = [given for given in (data, keyword(loader.node, "collate_fn", 6)) if given is not None]
        for given in used:
            if found := _of_code(state, reach, given, made_elsewhere):
                return found
        if found := _of_transforms(state, unit, data, set()):
            return found
    return ""


def _of_code(state: State, reach: Reach, given: cst.BaseExpression, workers: bool) -> str:
    """A draw in the program's own code that makes rows or batches of them: the data set, its transforms, what collates;
    of torch, or in a worker of any generator."""
    for function in held_code(state, given):
        for node in reach.runs(function.node.body, function.unit):
            record = state.calls.get(node) if isinstance(node, cst.Call) else None
            found = drawn(record) if record is not None else None
            if record is None or found is None or keyword(record.node, "generator") is not None:
                continue
            if found.generator == "torch" or workers:
                return spelled_call(record.unit, record.node)
    return ""


def _of_transforms(state: State, unit: Unit, value: cst.BaseExpression, seen: set[Binding]) -> str:
    """A random transform among what a data set is made of, as far as names lead."""
    for node in descendants(value):
        record = state.calls.get(node) if isinstance(node, cst.Call) else None
        if record is not None and random_transform(outside_name(record)):
            return spelled_call(unit, record.node)
        binding = unit.names.binding(node) if isinstance(node, cst.Name) else None
        if isinstance(node, cst.Name) and binding is not None and binding not in seen:
            seen.add(binding)
            for behind in plain_values(unit.names, node):
                if found := _of_transforms(state, unit, behind, seen):
                    return found
    return ""


def spelled_call(unit: Unit, call: cst.Call) -> str:
    """What is called, as the script spells it."""
    text = unit.names.one_line(call.func)
    return f"`{text if len(text) <= _LONGEST else method_name(call)}`"


# How processes agree ------------------------------------------------------------------------------------------------


class Receiver:
    """Where the main process's values can be received: of an evaluation, and of what is decided on one."""

    def __init__(
        self, reach: Reach, plain: Equality, because: str, open_to: Callable[[Unit, cst.CSTNode], bool]
    ) -> None:
        self.state, self.reach, self.plain, self.because = reach.state, reach, plain, because
        self.open_to = open_to

    def given(self, unit: Unit, loop: cst.CSTNode, random: Equality) -> list[tuple[Unit, Gather]]:
        """What an evaluation gives; nothing where it cannot be sent, or not all come by."""
        if not self._all_come(unit, loop, self.plain):
            return []
        if isinstance(loop, (cst.For, cst.While)):
            names = _read_after(unit, self.plain, random, loop)
            sent = names and not any(_has_tensors(self.state, reads) for reads in names.values())
            return [(unit, self._gather(loop, names))] if sent else []
        whole = _comprehension(unit, loop)
        if isinstance(whole, cst.GeneratorExp):
            taker = unit.names.parents.get(unit.names.parents[whole])
            whole = taker if isinstance(taker, cst.Call) else whole
        sent = not isinstance(whole, cst.GeneratorExp) and not _has_tensors(self.state, [whole])
        return [(unit, self._gather(whole, ()))] if sent else []

    def decided(self, random: Equality, left: list[tuple[Unit, Decision]]) -> list[tuple[Unit, Gather]]:
        """The first of what is decided on that can be sent: where a variable gets it, or else where all processes
        decide. Others may be settled with it."""
        for unit, found in left:
            local = [name for name in random.local_names(unit, found.value) if not self.plain.is_local(unit, name)]
            held = [name for name in local if not self._is_code(name)]
            made = {self._set_by(unit, name) for name in held}
            line = made.pop() if len(made) == 1 else None
            sent = not _has_tensors(self.state, held) and not any(map(self._is_object, held))
            if line is not None and sent and self._all_come(unit, line, random):
                return [(unit, self._gather(line, dict.fromkeys(name.value for name in held)))]
        for unit, found in left:
            if self._all_come(unit, found.value, random) and not _has_tensors(self.state, [found.value]):
                return [(unit, self._gather(found.value, ()))]
        return []

    def _is_code(self, name: cst.Name) -> bool:
        """Whether a variable holds a function or a class: what it gives differs, and not the variable itself."""
        slot = self.state.values.get(name)
        return slot is not None and any(isinstance(thing, (Function, Klass, Bound)) for thing in slot.things)

    def _is_object(self, name: cst.Name) -> bool:
        """Whether a variable holds an object of the script's own: it is made before it has seen any figure, and what it
        keeps (a model, the accelerator) cannot be sent."""
        held = self.state.values.get(name)
        return any(isinstance(thing, Instance) for thing in held.things) if held is not None else False

    def _gather(self, node: cst.CSTNode, names: Iterable[str]) -> Gather:
        return Gather(node, tuple(names), self.because, form=Form.RECEIVE)

    def _all_come(self, unit: Unit, node: cst.CSTNode, equality: Equality) -> bool:
        """Whether all processes come by a piece of code, which no other program uses."""
        around = unit.names.enclosing(node, cst.If, cst.While)
        tests = [a.test for a in around if isinstance(a, (cst.If, cst.While)) and node is not a.test]
        return self.open_to(unit, node) and not any(equality.is_local(unit, test) for test in tests)

    def _set_by(self, unit: Unit, name: cst.Name) -> cst.CSTNode | None:
        """The one statement of the same function from which a read has its value; None where there are several, or an
        iterator, which cannot be sent."""
        binding = unit.names.binding(name)
        made = unshadowed(unit.names, binding, name) if binding is not None else ()
        if len(made) != 1 or unit.names.function(made[0]) is not unit.names.function(name):
            return None
        line, target = unit.names.statement(made[0]), unit.names.parents[made[0]]
        value = unit.names.parents[target] if isinstance(target, cst.AssignTarget) else None
        iterator = isinstance(value, cst.Assign) and self._is_iterator(unit, value.value, set())
        return line if isinstance(line, cst.SimpleStatementLine) and not iterator else None

    def _is_iterator(self, unit: Unit, value: cst.BaseExpression, seen: set[cst.CSTNode]) -> bool:
        """Whether an expression gives what can be read only once: ``map(...)``, a generator."""
        if isinstance(value, cst.Name):
            return any(self._is_iterator(unit, behind, seen) for behind in plain_values(unit.names, value))
        if not isinstance(value, cst.Call) or value in seen or value not in self.state.calls:
            return isinstance(value, cst.GeneratorExp)
        seen.add(value)
        home, _, name = outside_name(self.state.calls[value]).rpartition(".")
        if home == "builtins" and hasattr(getattr(builtins, name, None), "__next__"):
            return True
        called = [(self.reach.unit(f), f) for f in self.reach.called(value)]
        return any(self.reach.yields(f) for _, f in called) or any(
            self._is_iterator(at, given.value, seen)
            for at, f in called
            for given in at.names.returns.get(f, ())
            if given.value is not None
        )


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
