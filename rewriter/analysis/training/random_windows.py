"""Training without a loader whose batches are drawn at random by torch: windows of a text, rows of a table."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ...findings import Finding, Severity
from ..dataflow.call_graph import Reach
from ..dataflow.values import CallRecord, State, Unit
from .training import Training, outside_name

_TORCH = frozenset({"torch.randint", "torch.randperm"})
_OTHER = frozenset(
    "numpy.random.randint numpy.random.choice numpy.random.permutation random.sample random.choices "
    "random.randint".split()
)


def find_windows(state: State, reach: Reach, training: Training) -> Iterator[tuple[Unit, Finding]]:
    """Take the loops that draw their own batches for training loops, and say what that means."""
    for record in training.backwards:
        loop = next((n for n in reach.loops(record.node, record.unit) if isinstance(n, (cst.For, cst.While))), None)
        if loop is None or loop in training.train_loops:
            continue
        for draw in _draws(state, reach, loop, record.unit, _TORCH):
            training.train_loops[loop] = None
            yield (
                draw.unit,
                Finding(
                    "random-batches",
                    draw.node,
                    "no loader feeds this training: every process draws its own batches, because torch's generators "
                    "differ between processes after prepare(...). An epoch keeps its length, and a value computed from "
                    "such batches is the estimate of one process",
                    "no action needed for the gradients; reduce estimates that control the program: "
                    "accelerator.reduce(...)",
                    Severity.REVIEW,
                ),
            )
            break


def drawn_alike(state: State, reach: Reach, training: Training) -> CallRecord | None:
    """A draw of batches by python or numpy, whose generators are equal on all processes."""
    for record in training.backwards:
        for loop in reach.loops(record.node, record.unit)[:1]:
            for draw in _draws(state, reach, loop, record.unit, _OTHER):
                return draw
    return None


def _draws(state: State, reach: Reach, loop: cst.CSTNode, unit: Unit, names: frozenset[str]) -> Iterator[CallRecord]:
    """The random draws in a loop that choose rows."""
    body = loop.body if isinstance(loop, (cst.For, cst.While)) else loop
    for node in reach.runs(body, unit):
        if isinstance(node, cst.Call) and node in state.calls and outside_name(state.calls[node]) in names:
            record = state.calls[node]
            if _chooses(record.unit, node):
                yield record


def _chooses(unit: Unit, call: cst.Call) -> bool:
    """Whether what is drawn is used as an index, or iterated to be one."""
    if any(isinstance(a, (cst.SubscriptElement, cst.CompFor)) for a in unit.names.ancestors(call)):
        return True
    target = unit.names.parents.get(call)
    if isinstance(target, cst.Assign) and len(target.targets) == 1 and isinstance(target.targets[0].target, cst.Name):
        binding = unit.names.binding(target.targets[0].target)
        for read in binding.reads if binding is not None else ():
            if any(isinstance(a, (cst.SubscriptElement, cst.CompFor)) for a in unit.names.ancestors(read)):
                return True
    return False
