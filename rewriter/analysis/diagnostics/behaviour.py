"""
What ``--roles`` tells of the code itself: which loops train and which evaluate, what all processes must do together,
which values are equal on all of them, and what each process holds of those of a loop over batches.

It asks what the other analyses have found, and is only asked when somebody wants to read it.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...facts.module import Behaviour, Gather
from ...facts.roles import SHARES, Role
from ..dataflow.call_graph import Reach
from ..dataflow.callees import method_name
from ..dataflow.values import CallRecord, State, Unit, origins
from ..layouts.decisions import joint_of
from ..layouts.divergence import Equality
from ..syntax.scopes import Binding, Scope, ScopeKind
from ..training.training import Training
from .value_layouts import value_layouts


def story(
    state: State, unit: Unit, reach: Reach, training: Training, equality: Equality, gathers: list[Gather]
) -> Iterator[Behaviour]:
    """Everything that is reported about one module, in no order."""
    yield from _Loops(unit, reach, training).told()
    yield from _joined(state, unit, reach, equality)
    yield from _values(state, unit, reach, equality, gathers)
    yield from value_layouts(state, unit, training)


class _Loops:
    """The loops of one module, and what they are for."""

    def __init__(self, unit: Unit, reach: Reach, training: Training) -> None:
        self.unit, self.reach, self.training = unit, reach, training
        self.backwards = {record.node: record for record in training.backwards}
        self.steps = {record.node: record for record in training.steps}

    def told(self) -> Iterator[Behaviour]:
        """Training steps, micro-steps, evaluation loops and the loops around them."""
        for loop in self.unit.names.loops:
            code = self.unit.names.function(loop)
            if code not in self.reach.reachable:
                continue
            if loop in self.training.train_loops:
                yield self._trains(loop)
            elif loop in self.training.eval_loops:
                yield self._told(
                    loop, "evaluation loop", f"it runs a model on {self._source(loop)} and has no optimizer step"
                )
            else:
                yield from self._around(loop)
        for code in self.unit.names.functions:
            if isinstance(code, cst.FunctionDef) and code in self.reach.reachable:
                yield from self._function(code)

    def _trains(self, loop: cst.CSTNode) -> Behaviour:
        backwards, steps = self._work(loop)
        gate = next((test for record in steps if (test := self._gate(record, loop, backwards)) is not None), None)
        found = f"{_words(backwards)} and {_words(steps)}" if steps else _words(backwards)
        if gate is not None:
            text = self.unit.names.module.code_for_node(gate).strip()
            return self._told(loop, "micro-step", f"runs {_words(backwards)} each time, {_words(steps)} if {text}")
        return self._told(loop, "training step", f"goes through {self._source(loop)} and runs {found}")

    def _work(self, node: cst.CSTNode) -> tuple[list[CallRecord], list[CallRecord]]:
        body = node.body if isinstance(node, (cst.For, cst.While, cst.FunctionDef)) else node
        runs = list(self.reach.runs(body, self.unit))
        return (
            [self.backwards[n] for n in runs if isinstance(n, cst.Call) and n in self.backwards],
            [self.steps[n] for n in runs if isinstance(n, cst.Call) and n in self.steps],
        )

    def _gate(self, record: CallRecord, loop: cst.CSTNode, backwards: list[CallRecord]) -> cst.BaseExpression | None:
        """The test under which a step runs, and no backward pass does."""
        for around in record.unit.names.enclosing(record.node, cst.If):
            if loop in record.unit.names.ancestors(around):
                inside = set(self.reach.runs(around.body, record.unit))
                if not any(backward.node in inside for backward in backwards):
                    return around.test
        return None

    def _around(self, loop: cst.CSTNode) -> Iterator[Behaviour]:
        body = loop.body if isinstance(loop, (cst.For, cst.While)) else None
        runs = list(self.reach.runs(body, self.unit)) if body is not None else []
        inner = [n for n in runs if n in self.training.train_loops]
        if inner:
            yield self._told(loop, "epoch loop", "a training loop runs in it")

    def _function(self, code: cst.FunctionDef) -> Iterator[Behaviour]:
        own = list(self.reach.own(code))
        backwards = [self.backwards[n] for n in own if isinstance(n, cst.Call) and n in self.backwards]
        loops = any(loop in self.training.train_loops for loop in own)
        if backwards and not loops:
            _, steps = self._work(code)
            kind = "training step" if steps else "micro-step"
            found = [*backwards, *steps]
            yield Behaviour(code, code.name.value, self._scope(code), kind, f"runs {_words(found)} in an inner loop")

    def _told(self, loop: cst.CSTNode, kind: str, because: str) -> Behaviour:
        word = "while" if isinstance(loop, cst.While) else "for"
        return Behaviour(loop, word, self._scope(self.unit.names.function(loop)), kind, because)

    def _source(self, loop: cst.CSTNode) -> str:
        iterated = loop.iter if isinstance(loop, (cst.For, cst.CompFor)) else None
        return self.unit.names.module.code_for_node(iterated) if iterated is not None else "a loader"

    def _scope(self, code: cst.CSTNode) -> str:
        return self.unit.names.scopes[code].qualname


def _words(records: list[CallRecord]) -> str:
    texts = (record.unit.names.module.code_for_node(record.node.func) for record in records)
    return ", ".join(dict.fromkeys(texts)) or "nothing"


def _joined(state: State, unit: Unit, reach: Reach, equality: Equality) -> Iterator[Behaviour]:
    """The statements that reach a collective: no guard may enclose one."""
    joint = joint_of(equality)
    told: set[cst.CSTNode] = set()
    for call in unit.names.calls:
        code = unit.names.function(call)
        if call not in state.calls or code not in reach.reachable:
            continue
        found = joint.runs(call)
        statement = unit.names.statement(call)
        if found is None or statement in told:
            continue
        told.add(statement)
        name = unit.names.module.code_for_node(call.func)
        what = name if found is call else f"{name} reaches {_what(found, reach)}"
        because = f"{what}: all processes run it, or none"
        yield Behaviour(statement, method_name(call), unit.names.scopes[code].qualname, "together", because)


def _what(node: cst.CSTNode, reach: Reach) -> str:
    """The name of a call, or the loop that draws from a loader."""
    unit = next(unit for unit in reach.units if node in unit.names.parents)
    if isinstance(node, (cst.For, cst.CompFor)):
        return f"the loop over {unit.names.module.code_for_node(node.iter)}"
    return unit.names.module.code_for_node(node.func) if isinstance(node, cst.Call) else "a loop"


def _values(state: State, unit: Unit, reach: Reach, equality: Equality, gathers: list[Gather]) -> Iterator[Behaviour]:
    """Which variables are equal on all processes, and which are one process's own."""
    whole = {(unit.names.function(g.node), name) for g in gathers for name in g.set_anew}
    for scope in unit.names.scopes.values():
        if scope.kind is ScopeKind.CLASS or scope.function.node not in reach.reachable:
            continue
        for binding in scope.bindings.values():
            if _is_value(state, binding):
                gathered = (scope.function.node, binding.name) in whole
                yield _value(state, unit, equality, scope, binding, gathered=gathered)


def _value(
    state: State, unit: Unit, equality: Equality, scope: Scope, binding: Binding, *, gathered: bool
) -> Behaviour:
    node = binding.definitions[0]
    source = equality.source(binding)
    if source is None:
        made = origins(state.binding(binding), *SHARES)
        because = (
            "everything it is computed from is equal on all processes" if made else "it does not depend on a batch"
        )
        return Behaviour(node, binding.name, scope.qualname, "equal", because)
    text = unit.names.module.code_for_node(source.iter if isinstance(source, (cst.For, cst.CompFor)) else source)
    because = f"comes from {' '.join(text.split())}, of which each process has its shard"
    if gathered:
        because += "; gathered after it"
    return Behaviour(node, binding.name, scope.qualname, "local", because)


def _is_value(state: State, binding: Binding) -> bool:
    plain = [d for d in binding.definitions if isinstance(d, (cst.Name, cst.Param))]
    if not plain or len(plain) != len(binding.definitions) or binding.name in ("self", "cls"):
        return False
    other = (Role.MODEL, Role.OPTIMIZER, Role.LOADER, Role.SCHEDULER, Role.CRITERION, Role.DEVICE, Role.ACCELERATOR)
    return not origins(state.binding(binding), *other)
