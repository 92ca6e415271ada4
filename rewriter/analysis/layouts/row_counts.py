"""
How many rows a batch has, asked of its inputs: ``losses.update(loss.item(), images.size(0))``.

To gather images only to count them would be dear. Where the labels that the criterion holds against the model's output
have as many rows, they are asked in their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.roles import Role
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..syntax.scopes import Binding
from ..syntax.walk import descendants
from ..training.training import Training
from .batch_shapes import is_row_count
from .loop_layouts import LoopLayouts

_MOVES = frozenset({"to", "cuda", "cpu"})


def counted(
    state: State,
    unit: Unit,
    training: Training,
    loop: cst.CSTNode,
    layouts: LoopLayouts,
    bindings: Iterable[Binding],
    reads: set[cst.CSTNode],
) -> tuple[list[Binding], tuple[tuple[cst.Name, str], ...]]:
    """The variables to gather, and the names that others take the place of because only rows are counted."""
    kept: list[Binding] = []
    swapped: list[tuple[cst.Name, str]] = []
    for binding in bindings:
        sizes = [read for read in binding.reads if read in reads]
        labels = (
            _labels(state, unit, training, loop, layouts, binding) if all(_is_size(unit, r) for r in sizes) else None
        )
        if labels is not None and sizes:
            swapped.extend((read, labels.name) for read in sizes)
        kept.append(labels if labels is not None and sizes else binding)
    return list(dict.fromkeys(kept)), tuple(swapped)


def _is_size(unit: Unit, read: cst.Name) -> bool:
    """``x.size(0)``, ``x.size()[0]``, ``x.shape[0]``, ``len(x)``."""
    parent = unit.names.parents.get(read)
    above = unit.names.parents.get(parent) if isinstance(parent, (cst.Arg, cst.Attribute)) else None
    around = unit.names.parents.get(above) if isinstance(above, cst.Call) and not above.args else None
    return is_row_count(above) or is_row_count(around)


def _labels(
    state: State, unit: Unit, training: Training, loop: cst.CSTNode, layouts: LoopLayouts, inputs: Binding
) -> Binding | None:
    """The labels of ``output = model(inputs)`` and ``criterion(output, labels)``, or of both in one expression."""
    names = unit.names
    given = {inputs, *_renamed(unit, loop, inputs)}
    outputs = set()
    for node in descendants(loop):
        if isinstance(node, cst.Assign) and len(node.targets) == 1 and _fed(unit, training, node.value) in given:
            target = node.targets[0].target
            outputs.add(names.binding(target) if isinstance(target, cst.Name) else None)
    for node in descendants(loop):
        if isinstance(node, cst.Call) and len(node.args) == 2 and origins(state.values.get(node), Role.LOSS):
            output, labels = (_unmoved(arg.value) for arg in node.args)
            if not isinstance(labels, cst.Name) or method_name(node) == "backward":
                continue
            held = isinstance(output, cst.Name) and names.binding(output) in outputs
            direct = layouts.gives_rows(output) and _fed(unit, training, _forward(training, output)) in given
            binding = names.binding(labels)
            if (held or direct) and binding is not None and binding is not inputs:
                return binding
    return None


def _renamed(unit: Unit, loop: cst.CSTNode, inputs: Binding) -> Iterator[Binding]:
    """The variables that are nothing but the inputs by another name: ``input_var = input.cuda()``."""
    for node in descendants(loop):
        if isinstance(node, cst.Assign) and len(node.targets) == 1:
            value, target = _unmoved(node.value), node.targets[0].target
            if isinstance(value, cst.Name) and isinstance(target, cst.Name) and unit.names.binding(value) is inputs:
                binding = unit.names.binding(target)
                if binding is not None:
                    yield binding


def _forward(training: Training, value: cst.BaseExpression) -> cst.CSTNode | None:
    """The one forward call in an expression."""
    calls = [node for node in descendants(value) if node in training.forwards]
    return calls[0] if len(calls) == 1 else None


def _fed(unit: Unit, training: Training, value: cst.CSTNode | None) -> Binding | None:
    """The one variable that a forward call is given."""
    if not isinstance(value, cst.Call) or value not in training.forwards or len(value.args) != 1:
        return None
    given = _unmoved(value.args[0].value)
    return unit.names.binding(given) if isinstance(given, cst.Name) else None


def _unmoved(value: cst.BaseExpression) -> cst.BaseExpression:
    """What a move is made of: ``x`` of ``x.to(device)``."""
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value in _MOVES:
        value = value.func.value
    return value
