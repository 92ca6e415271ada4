"""Which GPUs a script may see, chosen in the script: under a launcher every process would take the same ones."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import libcst as cst

from ...facts.reasons import Reason
from ...facts.reasons.devices import AskedInput, ChosenGpus, CountedGpus, PinnedGpu
from ...facts.torch_api import process_calls
from ..dataflow.call_graph import Code, Reach
from ..dataflow.callees import method_name, outside_name
from ..dataflow.values import State, Unit
from ..syntax.walk import contains, descendants, nodes_in

_VISIBLE = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"})
_NONE = frozenset({"", "-1"})
"""No GPU at all: such a script stays on the CPU, and that is meant."""


def visible_devices(unit: Unit, reach: Reach) -> list[cst.SimpleStatementLine]:
    """The statements that set the visible GPUs in the environment, in source order."""
    found = []
    for statement in _statements(unit, reach):
        small = statement.body[0]
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            target = small.targets[0].target
            if isinstance(target, cst.Subscript) and is_environment(unit, target.value):
                index = target.slice[0].slice
                if isinstance(index, cst.Index) and _word(index.value) in _VISIBLE and _word(small.value) not in _NONE:
                    found.append(statement)
        elif isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
            call = small.value
            puts = method_name(call) in ("setdefault", "putenv") and len(call.args) == 2
            if puts and _word(call.args[0].value) in _VISIBLE and _word(call.args[1].value) not in _NONE:
                found.append(statement)
    return found


def _statements(unit: Unit, reach: Reach) -> Iterator[cst.SimpleStatementLine]:
    for node in unit.names.every(cst.SimpleStatementLine):
        if len(node.body) == 1:
            if unit.names.function(node) in reach.reachable and reach.resting(unit, node) is None:
                yield node


def is_environment(unit: Unit, node: cst.BaseExpression) -> bool:
    """Whether an expression is the environment of the process."""
    return unit.names.module.code_for_node(node) in ("os.environ", "environ")


def _word(node: cst.BaseExpression) -> str | None:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


def left_to_launcher(
    state: State, unit: Unit, reach: Reach, removed: Sequence[cst.CSTNode], shared: Container[Code], notebook: bool
) -> Iterator[Reason]:
    """The findings about GPUs that the script numbers by itself; ``shared``: functions that other programs use, too.
    ``notebook``: its own process starts the others."""
    for statement in removed:
        if chooses(unit, statement):
            yield ChosenGpus(statement, notebook)
            yield from _counted(unit, reach, statement)
    for call in unit.names.calls:
        record = state.calls.get(call)
        if record is None or unit.names.function(call) not in reach.reachable:
            continue
        pins = process_calls.pins(outside_name(record)) and unit.names.function(call) not in shared
        if pins and any(_is_chosen(arg.value) for arg in call.args):
            yield PinnedGpu(call, notebook)
        elif outside_name(record) == "builtins.input":
            yield AskedInput(call)


def _counted(unit: Unit, reach: Reach, removed: cst.CSTNode) -> Iterator[Reason]:
    """``for k in range(torch.cuda.device_count()): print(args.gpu.split(",")[k])``: the choice, by the numbers of the
    GPUs that it had made visible."""
    names, module = unit.names, unit.names.module
    chosen = next((n.value for n in nodes_in(removed, cst.Assign)), None)
    chosen = chosen or next((call.args[-1].value for call in nodes_in(removed, cst.Call)), None)
    if chosen is None or isinstance(chosen, cst.SimpleString):
        return
    for loop in names.every(cst.For):
        counts = any(method_name(call) == "device_count" for call in nodes_in(loop.iter, cst.Call))
        if not counts or names.function(loop) not in reach.reachable:
            continue
        for item in nodes_in(loop.body, cst.Subscript):
            index = item.slice[0].slice if len(item.slice) == 1 else None
            numbered = isinstance(index, cst.Index) and index.value.deep_equals(loop.target)
            if numbered and any(part.deep_equals(chosen) for part in descendants(item.value)):
                yield CountedGpus(item, module.code_for_node(item))


def chooses(unit: Unit, statement: cst.CSTNode) -> bool:
    """Whether such a statement says which GPUs there are, and not only how they are numbered."""
    return "VISIBLE" in unit.names.module.code_for_node(statement)


def _is_chosen(node: cst.BaseExpression) -> bool:
    """Whether a device number is the user's choice, not a constant."""
    return contains(node, cst.Name, cst.Attribute)
