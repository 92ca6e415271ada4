"""
How many rows a batch has, asked of its inputs: ``losses.update(loss.item(), images.size(0))``.

To gather images only to count them would be dear. Where the labels that the criterion holds against the model's output
have as many rows, they are asked in their place; else a number for each row is gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import libcst as cst

from ...facts.accelerator import Side
from ...facts.module import Gather
from ...facts.roles import Role
from ...facts.torch_api import questions
from ..dataflow.callees import method_name
from ..dataflow.values import State, Unit, origins
from ..syntax.nodes import keyword
from ..syntax.scopes import Binding
from ..syntax.walk import contains, descendants, nodes_in
from ..training.training import Training
from .batch_shapes import is_row_count
from .engine.layout import Shard, inner
from .loop_layouts import LoopLayouts, unmoved


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
    bindings = list(bindings)
    for binding in bindings:
        sizes, labels = [read for read in binding.reads if read in reads], None
        if all(_is_size(unit, read) for read in sizes):
            labels = _labels(state, unit, training, loop, layouts, binding)
            labels = labels or _beside(state, unit, loop, binding, bindings, reads)
        if labels is not None and sizes:
            swapped.extend((read, labels.name) for read in sizes)
        kept.append(labels if labels is not None and sizes else binding)
    return list(dict.fromkeys(kept)), tuple(swapped)


def only_counted(
    layouts: LoopLayouts, training: Training, loop: cst.CSTNode, gather: Gather, names: Iterable[Binding]
) -> tuple[str, ...]:
    """The inputs of the model, among the variables of a gather, of which nothing is read after it but how many rows
    they have: tensors that each turn of the loop sets anew, and that nothing outside it reads."""
    order, inside = layouts.unit.names.order, set(descendants(loop))
    fed = _inputs(layouts.unit, training, inside)
    front = set(descendants(gather.node)) if gather.side is Side.AFTER else set()
    found = []
    for binding in names:
        given = isinstance(loop, cst.For) and binding in _set_by(layouts.unit, loop.target)
        later = [r for r in binding.reads if r not in front and not order(r) < order(gather.node)]
        given = given and inside.issuperset(binding.reads) and not fed.isdisjoint(binding.reads)
        if given and later and _is_tensor(layouts, binding):
            if all(_is_size(layouts.unit, read) for read in later):
                found.append(binding.name)
    return tuple(found)


def _is_tensor(layouts: LoopLayouts, binding: Binding) -> bool:
    """Whether a variable has the rows of a batch along its first dimension: a tensor, and no list or dict of some."""
    if layouts.is_rows(binding):
        return True
    around = (layouts.unit.names.parents.get(read) for read in binding.reads)
    asked = any(isinstance(above, cst.Attribute) and above.attr.value in ("size", "shape") for above in around)
    return asked and all(isinstance(inner(layout), Shard) for layout in layouts.at_definitions(binding))


def _inputs(unit: Unit, training: Training, nodes: set[cst.CSTNode]) -> set[cst.CSTNode]:
    """What is read in forward calls; not in those of a criterion, which are given what others gave."""
    assigns = [
        n for n in nodes if isinstance(n, cst.Assign) and not training.forwards.keys().isdisjoint(descendants(n.value))
    ]
    outputs = {binding for node in assigns for target in node.targets for binding in _set_by(unit, target.target)}
    calls = [list(descendants(call)) for call in nodes if call in training.forwards]
    own = (c for c in calls if not any(isinstance(n, cst.Name) and unit.names.binding(n) in outputs for n in c))
    return {node for call in own for node in call}


def _is_size(unit: Unit, read: cst.Name) -> bool:
    """``x.size(0)``, ``x.size()[0]``, ``x.shape[0]``, ``len(x)``."""
    parent = unit.names.parents.get(read)
    above = unit.names.parents.get(parent) if isinstance(parent, (cst.Arg, cst.Attribute)) else None
    around = unit.names.parents.get(above) if isinstance(above, cst.Call) and not above.args else None
    return is_row_count(above) or is_row_count(around)


def _beside(
    state: State, unit: Unit, loop: cst.CSTNode, inputs: Binding, gathered: Iterable[Binding], reads: set[cst.CSTNode]
) -> Binding | None:
    """Another part of the batch that is gathered for more than its rows: torch itself gives each as many."""
    loaders = state.loaders.get(loop, ())
    torchs = all(
        isinstance(loader.node, cst.Call)
        and loader.qualified == "torch.utils.data.DataLoader"
        and keyword(loader.node, "collate_fn", 6) is None
        for loader in loaders
    )
    if not loaders or not torchs or not _of_batch(unit, loop, inputs) or _reshaped(unit, loop, inputs, set()):
        return None
    for other in gathered:
        whole = any(read in reads and not _is_size(unit, read) for read in other.reads)
        if other is not inputs and whole and _of_batch(unit, loop, other) and not _reshaped(unit, loop, other, set()):
            return other
    return None


def _labels(
    state: State, unit: Unit, training: Training, loop: cst.CSTNode, layouts: LoopLayouts, inputs: Binding
) -> Binding | None:
    """The labels of ``output = model(inputs)`` and ``criterion(output, labels)``, or of both in one expression; of a
    model with several inputs and outputs, what the criterion is given beside these and the model is not."""
    names = unit.names
    given = {inputs, *_renamed(unit, loop, inputs)}
    nodes = list(descendants(loop))
    outputs: dict[Binding | None, bool] = {}
    """What forward calls give that are given the inputs; and whether they are given nothing else."""
    for node in nodes:
        if isinstance(node, cst.Assign) and len(node.targets) == 1:
            read = _fed(unit, training, node.value)
            if not given.isdisjoint(read):
                outputs.update(dict.fromkeys(_set_by(unit, node.targets[0].target), len(read) == 1))
    forwards = [node for node in nodes if node in training.forwards]
    judging = [node for node in forwards if not outputs.keys().isdisjoint(_fed(unit, training, node))]
    """The modules that are given what the model gave: a criterion of the script's own."""
    fed = {binding for node in forwards if node not in judging for binding in _fed(unit, training, node)}
    for node in nodes:
        if not isinstance(node, cst.Call) or not (node in judging or origins(state.values.get(node), Role.LOSS)):
            continue
        if len(node.args) < 2 or method_name(node) == "backward":
            continue
        *first, last = (unmoved(arg.value) for arg in node.args)
        labels = names.binding(last) if isinstance(last, cst.Name) else None
        if labels is None or labels is inputs or labels in outputs:
            continue
        read = _fed(unit, training, _forward(training, first[0])) if layouts.gives_rows(first[0]) else []
        held = [b for one in first if isinstance(one, cst.Name) and (b := names.binding(one)) in outputs]
        alone = len(first) == 1 and (len(read) == 1 if read else all(outputs[binding] for binding in held))
        if not (held or not given.isdisjoint(read)) or _reshaped(unit, loop, labels, set()):
            continue
        if alone or (labels not in fed and _of_batch(unit, loop, labels)):
            return labels
    return None


def _reshaped(unit: Unit, loop: cst.CSTNode, binding: Binding, seen: set[Binding]) -> bool:
    """Whether a variable is set in the loop to something in another shape, such as ``words.view(-1)``, which may have
    another number of rows than the batch."""
    if binding in seen:
        return False
    seen.add(binding)
    for node in nodes_in(loop, cst.Assign):
        if not any(binding in _set_by(unit, t.target) for t in node.targets):
            continue
        value = unmoved(node.value)
        for call in nodes_in(value, cst.Call):
            if questions.changes_shape(method_name(call)):
                return True
        source = unit.names.binding(value) if isinstance(value, cst.Name) else None
        if source is not None and _reshaped(unit, loop, source, seen):
            return True
    return False


def _of_batch(unit: Unit, loop: cst.CSTNode, binding: Binding) -> bool:
    """Whether the loop itself gives a variable, among others: a part of its batch."""
    target = loop.target if isinstance(loop, cst.For) else None
    return isinstance(target, cst.Tuple) and binding in _set_by(unit, target)


def _set_by(unit: Unit, target: cst.CSTNode) -> list[Binding]:
    """The variables in a target; none for what is an attribute or an entry."""
    names = list(nodes_in(target, cst.Name))
    plain = not contains(target, cst.Attribute, cst.Subscript)
    return [b for name in names if plain and (b := unit.names.binding(name)) is not None]


def _renamed(unit: Unit, loop: cst.CSTNode, inputs: Binding) -> Iterator[Binding]:
    """The variables that are nothing but the inputs by another name: ``input_var = input.cuda()``."""
    for node in nodes_in(loop, cst.Assign):
        if len(node.targets) == 1:
            value, target = unmoved(node.value), node.targets[0].target
            if isinstance(value, cst.Name) and isinstance(target, cst.Name) and unit.names.binding(value) is inputs:
                binding = unit.names.binding(target)
                if binding is not None:
                    yield binding


def _forward(training: Training, value: cst.BaseExpression) -> cst.CSTNode | None:
    """The one forward call in an expression."""
    calls = [node for node in descendants(value) if node in training.forwards]
    return calls[0] if len(calls) == 1 else None


def _fed(unit: Unit, training: Training, value: cst.CSTNode | None) -> list[Binding]:
    """The variables that a forward call is given; none where it is given anything else."""
    if not isinstance(value, cst.Call) or value not in training.forwards:
        return []
    given = [unmoved(arg.value) for arg in value.args]
    bindings = [unit.names.binding(one) if isinstance(one, cst.Name) else None for one in given]
    return [b for b in bindings if b is not None] if None not in bindings else []
