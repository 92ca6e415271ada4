"""What the new analysis must have seen to be trusted: the backward passes, steps and saves in the text."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..analysis.dataflow.callees import method_name
from ..analysis.dataflow.code_place import CodePlace
from ..analysis.dataflow.values import origins
from ..facts.roles import Role
from ..facts.torch_api import process_calls
from .program import EmittedProgram
from .violation import Violation

INVARIANT = "coverage"
_OF_OTHERS = frozenset({"backward", "reduce"})
"""Methods that not only the accelerator has."""


def unseen(program: EmittedProgram) -> Iterator[Violation]:
    """The calls in reached code that look like calls of the training or the accelerator, and were not understood."""
    training, ours = program.training, process_calls.together() - _OF_OTHERS
    seen = {r.node for r in (*training.backwards, *training.probes, *training.steps, *training.ticks)}
    seen.update(record.node for record in program.accelerated)
    for unit in program.reach.units:
        for call in unit.names.calls:
            if not isinstance(call.func, cst.Attribute) or call in seen:
                continue
            if unit.names.function(call) not in program.reach.reachable:
                continue
            name = method_name(call)
            if name == "backward" and not program.reach.called(call):
                yield Violation(INVARIANT, CodePlace(unit, call), "this backward pass was not understood")
            elif name in ours and not program.reach.called(call) and _is_accelerator(call.func.value):
                yield Violation(INVARIANT, CodePlace(unit, call), "this call of the accelerator was not understood")
    if program.updated_by_hand or (training.models and not training.optimizers):
        return
    for record in training.backwards:
        if not any(origins(s.receiver, Role.OPTIMIZER, Role.SCALER) for s in training.steps):
            yield Violation(INVARIANT, program.at(record), "no step of an optimizer was found for this backward pass")
            return


def _is_accelerator(node: cst.BaseExpression) -> bool:
    last = node.attr if isinstance(node, cst.Attribute) else node
    return isinstance(last, cst.Name) and last.value.endswith("accelerator")
